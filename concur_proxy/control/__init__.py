"""The loops above the data path: what engines say becomes the windows of the gate.

``scraper`` reads metrics through ``probe`` (one engine, once) and ``reading`` (an answer, in words or as a sample);
``health`` keeps the ``condition`` of each backend; ``roster`` keeps the pools; ``loop`` runs a regulator (``core``) for
each window, and ``status`` tells people of it. ``ports`` is what all this needs from elsewhere.
"""
