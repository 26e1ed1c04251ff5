"""Experiments with real vLLM: what a file of ``bench/experiments`` asks for, how it is played, kept and told."""
