"""The relay: frames on standard input and output, ZMTP to the kernel beside it.

One thread, one poll loop (``loop.py``); everything that decides is sans-I/O and tested on its own:

======================  ==============================================================================================
``link.py``             the stream's end: attach, marker, numbers, acknowledgements
``zmtp.py``             ZeroMQ's wire protocol, the client's side, with bounded memory
``incoming.py``         a kernel's message as it came, untrusted; signing of what goes to the kernel
``outputs.py``          which of the kernel's messages are carried: limits, retention, markers
``shorten.py``          what takes the place of a message that is too large
``life.py``             one kernel after the other: start, readiness, interrupt, restart, death
``transfers.py``        file streams between gateway and helpers
``calls.py``            the gateway's calls
``ports.py``            descriptors: sockets to a kernel, init, zygote
======================  ==============================================================================================

Every byte that comes from a kernel, a file helper or a file may be hostile; the gateway is trusted and checked all the same.
"""
