"""Sessions that nobody has named: a turn whose messages extend an earlier turn's belongs to that turn's session.

``messages`` and ``prompts`` turn a request into a *talk*: a hash per message, or per block of a plain prompt, chained.
``table`` keeps, within a bound in bytes, which *run* (one agent's, as far as its messages tell) has come to which point
of which chain. ``recogniser`` decides by them; ``answers`` reads from a passing answer by what the next turn is known.

No text is kept. Hashes are Python's own of texts: SipHash under a key that the interpreter draws at its start (unless
``PYTHONHASHSEED`` is set), several gigabytes a second. Runs of two API keys never meet: the key's namespace begins
every chain, and is compared again when a run is found.
"""

from concur_proxy.core.lineage.messages import talk_of
from concur_proxy.core.lineage.recogniser import BRANCH, COMPACTED, CONTINUED, NEW, RULES, Lineage, Recognised
from concur_proxy.core.lineage.runs import Run
from concur_proxy.core.lineage.talk import Talk

__all__ = ["BRANCH", "COMPACTED", "CONTINUED", "NEW", "RULES", "Lineage", "Recognised", "Run", "Talk", "talk_of"]
