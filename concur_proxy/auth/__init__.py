"""Who may call: API keys, tokens of an identity provider, and what each caller may use.

- ``caller``: a caller, by name. ``keys``: API keys and the file that has their HMACs. ``tokens``: JWTs, and ``jwks``
  the public keys that they are checked with.
- ``access``: from a request's headers to its caller. ``wall``: the same for the paths that an application serves.

Off by default: then engines check their own keys, as they do without a proxy. ``runtime/doorkeeper.py`` keeps what is
read from files and from the identity provider fresh.
"""
