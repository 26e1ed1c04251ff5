"""Agent frameworks, each as docs/integrations.md sets it up, through the proxy on real vLLM."""
