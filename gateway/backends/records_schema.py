"""The schema of the records, as numbered migrations.

Columns are typed for what is queried or compared; the rest is JSON in ``data``. A migration only adds (tables, columns
with a default, indexes), so that the previous release can go on with a newer file after an upgrade was taken back.
Should one ever have to break that, it raises ``READABLE_SINCE`` to its own number: a release that knows fewer
migrations then refuses the file instead of harming it.
"""

from __future__ import annotations

READABLE_SINCE = 1
"""The lowest schema number whose release can read and write what the newest migration leaves behind."""

_FIRST = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE lease (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  owner TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  until REAL NOT NULL
) STRICT;

CREATE TABLE sessions (
  session_id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  user TEXT NOT NULL,
  name TEXT NOT NULL,
  profile TEXT NOT NULL,
  state TEXT NOT NULL,
  generation INTEGER NOT NULL,
  created_at REAL NOT NULL,
  last_activity REAL NOT NULL,
  reason TEXT NOT NULL,
  sandbox_id TEXT NOT NULL,
  idle_deadline REAL,
  max_deadline REAL,
  ended_at REAL,
  data TEXT NOT NULL,
  version INTEGER NOT NULL
) STRICT;
CREATE INDEX sessions_owner ON sessions (tenant, user, created_at);
CREATE INDEX sessions_newest ON sessions (created_at);
CREATE INDEX sessions_live ON sessions (created_at) WHERE state <> 'ended';

CREATE TABLE sandboxes (
  sandbox_id TEXT PRIMARY KEY,
  engine_id TEXT NOT NULL,
  session_id TEXT REFERENCES sessions (session_id),
  profile TEXT NOT NULL,
  state TEXT NOT NULL,
  relay_uid INTEGER NOT NULL,
  user_uid INTEGER NOT NULL,
  marker TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  created_at REAL NOT NULL,
  claimed_at REAL,
  ended_at REAL,
  reason TEXT NOT NULL,
  data TEXT NOT NULL
) STRICT;
CREATE INDEX sandboxes_session ON sandboxes (session_id, created_at);
CREATE INDEX sandboxes_live ON sandboxes (created_at) WHERE state <> 'gone';

CREATE TABLE executions (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  execution_id TEXT NOT NULL UNIQUE,
  session_id TEXT NOT NULL REFERENCES sessions (session_id),
  tenant TEXT NOT NULL,
  user TEXT NOT NULL,
  msg_id TEXT NOT NULL,
  source TEXT NOT NULL,
  state TEXT NOT NULL,
  generation INTEGER NOT NULL,
  code_sha256 TEXT NOT NULL,
  created_at REAL NOT NULL,
  sandbox_id TEXT NOT NULL,
  started_at REAL,
  finished_at REAL,
  exit_reason TEXT NOT NULL,
  data TEXT NOT NULL
) STRICT;
CREATE INDEX executions_session ON executions (session_id, seq);
CREATE INDEX executions_unfinished ON executions (session_id, seq) WHERE state <> 'finished';

CREATE TABLE notices (
  notice_id INTEGER PRIMARY KEY AUTOINCREMENT,
  session_id TEXT NOT NULL REFERENCES sessions (session_id),
  kind TEXT NOT NULL,
  generation INTEGER NOT NULL,
  at REAL NOT NULL,
  delivered INTEGER NOT NULL,
  body TEXT NOT NULL
) STRICT;
CREATE INDEX notices_session ON notices (session_id, notice_id);

CREATE TABLE declarations (
  session_id TEXT NOT NULL REFERENCES sessions (session_id),
  pattern TEXT NOT NULL,
  keep INTEGER NOT NULL,
  source TEXT NOT NULL,
  created_at REAL NOT NULL,
  PRIMARY KEY (session_id, pattern)
) STRICT, WITHOUT ROWID;

CREATE TABLE artifacts (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  artifact_id TEXT UNIQUE,
  session_id TEXT NOT NULL REFERENCES sessions (session_id),
  tenant TEXT NOT NULL,
  user TEXT NOT NULL,
  path TEXT NOT NULL,
  sha256 TEXT NOT NULL,
  size INTEGER NOT NULL,
  mime TEXT NOT NULL,
  generation INTEGER NOT NULL,
  created_at REAL NOT NULL,
  execution_id TEXT NOT NULL,
  deleted INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX artifacts_path ON artifacts (session_id, path, seq);

CREATE TABLE audit (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  at REAL NOT NULL,
  tag TEXT NOT NULL,
  tenant TEXT NOT NULL,
  user TEXT NOT NULL,
  session_id TEXT NOT NULL,
  detail TEXT NOT NULL
) STRICT;
CREATE INDEX audit_tenant ON audit (tenant, seq);
CREATE INDEX audit_session ON audit (session_id, seq);
"""

_RETENTION = """
ALTER TABLE artifacts ADD COLUMN doomed_at REAL;
CREATE INDEX artifacts_doomed ON artifacts (seq) WHERE doomed_at IS NOT NULL;
CREATE INDEX sessions_over ON sessions (ended_at) WHERE state = 'ended';
CREATE INDEX sandboxes_over ON sandboxes (ended_at) WHERE state = 'gone';

CREATE TABLE orphans (key TEXT PRIMARY KEY, seen_at REAL NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE disabled_users (
  tenant TEXT NOT NULL,
  user TEXT NOT NULL,
  at REAL NOT NULL,
  by TEXT NOT NULL,
  text TEXT NOT NULL,
  sessions TEXT NOT NULL,
  enabled_at REAL,
  PRIMARY KEY (tenant, user)
) STRICT, WITHOUT ROWID;
"""
"""``doomed_at``: nobody sees the artifact any more, its row stays until its object is gone. ``orphans``: objects without a row.
Executions, notices and the audit have no index for their age: they go in the order of ``seq``, and are written often."""

_REVOCATIONS = """
CREATE TABLE revocations (
  token_id TEXT NOT NULL,
  tenant TEXT NOT NULL,
  user TEXT NOT NULL,
  at REAL NOT NULL,
  until REAL NOT NULL,
  PRIMARY KEY (token_id, tenant, user)
) STRICT, WITHOUT ROWID;
"""
"""Either ``token_id``, or ``tenant`` and ``user``; the others are empty."""

_VERDICTS = "ALTER TABLE artifacts ADD COLUMN verdict TEXT NOT NULL DEFAULT '';"

_CELLS = """
CREATE TABLE cells (
  place INTEGER PRIMARY KEY AUTOINCREMENT,
  execution_id TEXT NOT NULL UNIQUE,
  session_id TEXT NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE,
  generation INTEGER NOT NULL,
  source TEXT NOT NULL,
  exit_reason TEXT NOT NULL,
  created_at REAL NOT NULL,
  started_at REAL,
  finished_at REAL NOT NULL,
  execution_count INTEGER,
  code_sha256 TEXT NOT NULL,
  outputs_sha256 TEXT NOT NULL,
  code_bytes INTEGER NOT NULL,
  output_bytes INTEGER NOT NULL,
  left_out INTEGER NOT NULL,
  code TEXT NOT NULL,
  outputs TEXT NOT NULL
) STRICT;
CREATE INDEX cells_session ON cells (session_id, place, code_bytes, output_bytes);
"""
"""``code`` and ``outputs`` are JSON, and last, so that a query of the others does not read them. The release before does not know
the table: its removal of an ended session takes the cells with it."""

_TRACES = "CREATE INDEX executions_owner ON executions (tenant, user, seq);"
"""For the search through the traces of one user. Of one tenant, or by time or reason alone, it goes through the rows in their order."""

MIGRATIONS: tuple[str, ...] = (_FIRST, _RETENTION, _REVOCATIONS, _VERDICTS, _CELLS, _TRACES)
"""``MIGRATIONS[n]`` leads from schema n to n + 1; never change one that was released."""
