"""What each engine's metrics mean.

A ``Page`` is a metrics page as read, an ``Engine`` says how one kind's pages are found, recognised and read, and an
``EngineSample`` is what comes out: the same nouns for every kind, with None for what an engine does not tell.
"""
