"""How the secrets that tests plant look: keys of ours, and whatever calls itself planted."""

import re

PLANTED = re.compile(r"planted-secret|\bck_[A-Za-z0-9_-]{43}|-----BEGIN [A-Z ]*PRIVATE KEY|\beyJ[\w-]{10,}\.eyJ")
