"""A fake of every port, shipped with the package: no test needs to patch anything.

``clock`` time that a test moves, ``runtime`` an engine in memory, ``relay`` and ``kernel`` what runs in its sandboxes, ``stores``
records and objects. Each fake passes the same contract suite as the real thing.
"""
