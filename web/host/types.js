/**
 * The shapes of docs/api.md, for the type checker only: this module has no code.
 * Fields that the gateway may add later are ignored by the page, so none of these types is closed.
 *
 * @typedef {{name: string, type: string, size?: number | null}} Variable
 * @typedef {{path: string, sha256?: string, size?: number}} FileRef
 *
 * @typedef {object} Warning
 * @property {string} kind
 * @property {string} at
 * @property {string | null} deadline
 * @property {string} reason
 * @property {Variable[]} [variables]
 * @property {(string | FileRef)[]} [undeclared_files]
 * @property {(string | FileRef)[]} [kept_files]
 * @property {string[]} [actions]
 *
 * @typedef {'new' | 'starting' | 'active' | 'draining' | 'quarantined' | 'dormant' | 'ended'} SessionState
 *
 * @typedef {object} Session
 * @property {string} session_id
 * @property {string} name
 * @property {string} profile
 * @property {string} tier
 * @property {string} tenant
 * @property {string} user
 * @property {SessionState} state
 * @property {string} reason
 * @property {boolean} busy
 * @property {number} generation
 * @property {string} created_at
 * @property {string} last_activity
 * @property {string} server_time
 * @property {string | null} idle_deadline
 * @property {boolean} idle_paused
 * @property {string | null} max_deadline
 * @property {number} idle_timeout_s
 * @property {number} max_lifetime_s
 * @property {Warning[]} warnings
 * @property {Variable[]} variables
 * @property {string | null} variables_as_of
 * @property {Variable[]} lost_variables
 * @property {string} lost_because
 * @property {FileRef[]} restored_files
 * @property {string | null} ended_at
 * @property {{running: string | null, queued: number}} queue
 * @property {number} last_event
 * @property {number} extended_s
 * @property {{since: string, why: string, attempts: number, next_retry: string | null, gives_up_at: string} | null} quarantine
 * @property {{memory_bytes?: number, cpu_s?: number, pids?: number, as_of?: string}} [resources]
 * @property {string} [sandbox_id]
 * @property {number} [extension_left_s] how much more an admin may extend it, by policy
 *
 * @typedef {{at: string, tag: string, tenant: string, user: string, session_id: string, detail: Record<string, any>}} AuditEntry
 * @typedef {{sandbox_id: string, state: string, claimed_at: string | null, ended_at: string | null, reason: string}} SandboxLife
 * @typedef {{files: FileRef[], undeclared: FileRef[], more: number}} WouldLose
 * @typedef {Session & {history: SandboxLife[], notices: Notice[], audit: AuditEntry[], would_lose: WouldLose | null}} SessionDetail
 * @typedef {{user: string, tenant: string, disabled_at: string, by: string, reason_text: string, sessions: string}} DisabledUser
 *
 * @typedef {object} Execution
 * @property {string} execution_id
 * @property {'jupyter' | 'rest'} source
 * @property {'queued' | 'running' | 'finished'} state
 * @property {number | null} position
 * @property {string | null} status
 * @property {string | null} exit_reason
 * @property {string | null} next_action
 * @property {number | null} execution_count
 * @property {string} msg_id
 * @property {string} [stdout]
 * @property {string} [stderr]
 * @property {{data: Record<string, unknown>, metadata?: Record<string, unknown>}[]} [results]
 * @property {{name: string, value: string, traceback: string[]} | null} [error]
 * @property {{bytes_dropped: number, messages_dropped: number} | null} truncated
 * @property {Notice[]} [notices]
 * @property {number} generation
 * @property {string | null} created_at
 * @property {string | null} started_at
 * @property {string | null} finished_at
 * @property {number | null} duration_ms
 *
 * One cell of a transcript; `code` is null where the policy keeps none.
 * @typedef {object} Cell
 * @property {string} execution_id
 * @property {number} generation
 * @property {'jupyter' | 'rest'} source
 * @property {string} exit_reason
 * @property {boolean} succeeded
 * @property {number | null} execution_count
 * @property {string} created_at
 * @property {string | null} started_at
 * @property {string} finished_at
 * @property {string | null} code
 * @property {number} output_bytes
 * @property {number} left_out_bytes
 * @property {Record<string, any>[]} [outputs]
 * @property {boolean} [suggested]  a rebuild would take it by itself
 *
 * @typedef {object} Transcript
 * @property {'off' | 'hash' | 'full'} policy
 * @property {Cell[]} cells
 * @property {number | null} next
 * @property {{cells: number, bytes: number}} held
 * @property {number} retained_s
 *
 * @typedef {object} Rebuild
 * @property {string} rebuild_id
 * @property {'running' | 'done' | 'stopped' | 'cut'} state
 * @property {number} generation
 * @property {number} done
 * @property {number} total
 * @property {{cell: string, execution_id: string, exit_reason: string} | null} stopped_at
 * @property {string} detail
 * @property {string[]} lost_variables
 * @property {string[]} back
 * @property {string[]} missing
 *
 * @typedef {object} Notice
 * @property {string} notice_id
 * @property {string} kind
 * @property {number} generation
 * @property {string} at
 * @property {string} [text]
 * @property {string} [reason]
 * @property {string} [said] an admin's own words
 * @property {string | null} [deadline]
 * @property {Variable[]} [variables]
 * @property {(string | FileRef)[]} [files]
 * @property {(string | FileRef)[]} [failed]
 * @property {(string | FileRef)[]} [kept_files]
 * @property {(string | FileRef)[]} [undeclared_files]
 * @property {string[]} [actions]
 * @property {string} [execution_id]
 *
 * @typedef {object} KernelMessage
 * @property {'message'} type
 * @property {string} channel
 * @property {string} msg_type
 * @property {string} msg_id
 * @property {string} parent_msg_id
 * @property {string | null} execution_id
 * @property {string[]} [sensitive]  kinds of what its output looks like it contains
 * @property {Record<string, any>} content
 * @property {Record<string, any>} [metadata]
 * @property {string} [date]
 *
 * @typedef {{type: 'session', session: Session}
 *   | KernelMessage
 *   | ({type: 'notice'} & Notice)
 *   | {type: 'execution', execution: Execution}
 *   | {type: 'rebuild', rebuild: Rebuild}
 *   | {type: 'gap', after: number, oldest: number}
 *   | {type: 'bye', code: string}} StreamEvent
 *
 * @typedef {object} WorkspaceFile
 * @property {string} path
 * @property {number} size
 * @property {string} mtime
 * @property {boolean} declared
 * @property {boolean} stored
 * @property {string} [stored_at]
 * @property {string} [sha256]
 * @property {string} [held_back]
 *
 * @typedef {{files: WorkspaceFile[], refused: {path: string, reason: string}[], live: boolean, truncated: boolean}} FileList
 * @typedef {{pattern: string, keep: boolean, source: string, created_at: string}} Declaration
 * @typedef {{name: string, tier: string, runtime: string, available: boolean, problem: string, display_name: string,
 *   limits: Record<string, number>, lifetimes: Record<string, any>}} Profile
 * @typedef {{user: string, tenant: string, roles: string[], scopes: string[] | null, expires_at: string | null, frame_url: string, server_time: string}} Me
 */
export {};
