"""Several replicas of one proxy, through Redis: who owns which session, and how each window is shared out.

``shares``, ``reports`` and ``script.lua`` decide: how a window is divided by demand, what all replicas' reports add
up to, and what must happen at once, which happens in Redis. ``link`` carries calls there, ``replica`` keeps in touch,
``owners`` is what the data path asks, and ``steering`` is the gate that the control loop sees: all replicas as one.
"""
