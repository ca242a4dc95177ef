"""Messages of kernels as a tenant's policy lets them out: with what was found in them, or with words in their place."""

from __future__ import annotations

from ..domain.sensitive import Screen
from ..protocol import jupyter
from ..service.journal import Entry, EntryKind

OUTPUTS = frozenset({"stream", "display_data", "update_display_data", "execute_result", "error", "execute_reply"})


def screened(entry: Entry, screen: Screen) -> Entry:
    """The entry, or one whose message has words in the place of its output. For a policy that holds; any other passes by.

    A message that cannot be read is passed on: whoever writes it out refuses it.
    """
    if not screen.holds or entry.kind is not EntryKind.MESSAGE:
        return entry
    try:
        message = jupyter.decode(entry.body)
        if message.msg_type not in OUTPUTS or not (kinds := screen.look(message.msg_type, message.content)):
            return entry
        content = screen.held(message.msg_type, message.content, kinds)
        body = jupyter.build(message.channel, message.header, message.parent_header, message.metadata, content)
    except ValueError:
        return entry
    return entry._replace(body=body)
