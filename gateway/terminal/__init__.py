"""``sandglass run`` and ``sandglass sessions``: a terminal at a running gateway, through the Python client like any other program."""
