"""Where backends are found while the proxy runs: each source tells its whole list whenever it has changed.

A source that cannot be asked changes nothing: whether backends are alive is for the probes to find out.
"""
