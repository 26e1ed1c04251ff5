"""The law ``meanfield``: ``law`` decides, ``model`` has the equations, the others measure what goes into them."""

from concur_proxy.windows.meanfield.law import Meanfield

__all__ = ["Meanfield"]
