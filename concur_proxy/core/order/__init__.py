"""Orders in which held turns may go: who is next, and what has to be remembered to say so.

``base`` has the contract, ``ageing`` what bounds every wait in all of them, ``registry`` their names.
"""
