/**
 * The gateway's REST interface (docs/api.md), authenticated by the page's cookie.
 *
 * @typedef {import('./types.js').Session} Session
 * @typedef {import('./types.js').Execution} Execution
 */

/** A problem+json answer, or no answer at all (status 0). */
export class ApiError extends Error {
  /** @param {number} status @param {string} code @param {string} detail @param {Record<string, any>} [body] */
  constructor(status, code, detail, body = {}) {
    super(detail);
    this.status = status;
    this.code = code;
    this.body = body;
  }
}

/** @param {number} status @param {string} text @param {string | null} retryAfter */
export function problem(status, text, retryAfter) {
  /** @type {Record<string, any>} */
  let body = {};
  try {
    body = JSON.parse(text);
  } catch {
    // A proxy's own error page: the status has to do.
  }
  let detail = body.detail || body.message || body.title || `The gateway answered ${status}.`;
  const wait = body.retry_after ?? retryAfter;
  if (wait && (status === 429 || status === 503)) detail += ` Try again in ${wait} s.`;
  return new ApiError(status, body.code || body.reason || `http_${status}`, detail, body);
}

/**
 * @param {string} method @param {string} path @param {unknown} [body] @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
async function call(method, path, body, signal) {
  /** @type {RequestInit} */
  const init = { method, credentials: 'same-origin', headers: { Accept: 'application/json' }, cache: 'no-store' };
  if (signal) init.signal = signal;
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = { ...init.headers, 'Content-Type': 'application/json' };
  }
  let response;
  try {
    response = await fetch(path, init);
  } catch (cause) {
    if (signal?.aborted) throw cause;
    throw new ApiError(0, 'unreachable', 'The gateway cannot be reached just now.');
  }
  if (!response.ok) throw problem(response.status, await response.text(), response.headers.get('Retry-After'));
  if (response.status === 204) return null;
  return response.json();
}

const V1 = '/api/v1';
/** @param {string} id */
const session = (id) => `${V1}/sessions/${encodeURIComponent(id)}`;
/** @param {string} id */
const adminSession = (id) => `${V1}/admin/sessions/${encodeURIComponent(id)}`;
/** @param {string} path */
const encodePath = (path) => path.split('/').map(encodeURIComponent).join('/');

export const api = {
  /** @returns {Promise<import('./types.js').Me>} */
  me: () => call('GET', `${V1}/me`),
  /** @returns {Promise<{profiles: import('./types.js').Profile[], default: string}>} */
  profiles: () => call('GET', `${V1}/profiles`),
  logout: () => call('POST', '/logout'),
  /** @returns {Promise<{sessions: Session[]}>} */
  sessions: () => call('GET', `${V1}/sessions?ended=1`),
  /** @param {{profile?: string, name?: string}} body @returns {Promise<Session>} */
  create: (body) => call('POST', `${V1}/sessions`, body),
  /** @param {string} id @returns {Promise<Session>} */
  session: (id) => call('GET', session(id)),
  /** @param {string} id @returns {Promise<Session>} */
  end: (id) => call('DELETE', session(id)),
  /** @param {string} id @returns {Promise<Session>} */
  keepAlive: (id) => call('POST', `${session(id)}/keep-alive`),
  /** @param {string} id @returns {Promise<Session>} */
  recycle: (id) => call('POST', `${session(id)}/recycle`),
  /** @param {string} id */
  interrupt: (id) => call('POST', `${session(id)}/interrupt`),
  /** @param {string} id @returns {Promise<Session>} */
  restart: (id) => call('POST', `${session(id)}/restart`),
  /** @param {string} id @param {{code: string, timeout_s?: number, allow_stdin?: boolean}} body @returns {Promise<Execution>} */
  execute: (id, body) => call('POST', `${session(id)}/executions`, body),
  /** @param {string} id @returns {Promise<{executions: Execution[]}>} */
  executions: (id) => call('GET', `${session(id)}/executions`),
  /** @param {string} id @returns {Promise<{notices: import('./types.js').Notice[]}>} */
  notices: (id) => call('GET', `${session(id)}/notices`),
  /** @param {string} id @param {string} execution @returns {Promise<Execution>} */
  execution: (id, execution) => call('GET', `${session(id)}/executions/${encodeURIComponent(execution)}`),
  /** @param {string} id @param {string} execution */
  cancel: (id, execution) => call('DELETE', `${session(id)}/executions/${encodeURIComponent(execution)}`),
  /** @param {string} id @param {string} execution_id @param {string} value */
  stdin: (id, execution_id, value) => call('POST', `${session(id)}/stdin`, { execution_id, value }),
  /** @param {string} id @param {{after?: number, limit?: number, outputs?: 0 | 1}} [query] @returns {Promise<import('./types.js').Transcript>} */
  transcript: (id, query = {}) => call('GET', `${session(id)}/transcript?${new URLSearchParams(Object.entries(query).map(([k, v]) => [k, String(v)]))}`),
  /** @param {string} id */
  deleteTranscript: (id) => call('DELETE', `${session(id)}/transcript`),
  /** @param {string} id */
  notebookUrl: (id) => `${session(id)}/notebook`,
  /** @param {string} id @returns {Promise<import('./types.js').Rebuild>} */
  rebuild: (id) => call('GET', `${session(id)}/rebuild`),
  /** @param {string} id @param {{cells: string[], timeout_s?: number, allow_stdin: boolean}} body @returns {Promise<import('./types.js').Rebuild>} */
  startRebuild: (id, body) => call('POST', `${session(id)}/rebuild`, body),
  /** @param {string} id @returns {Promise<import('./types.js').Rebuild>} */
  stopRebuild: (id) => call('DELETE', `${session(id)}/rebuild`),
  /** @param {string} id @param {number} after */
  eventsUrl: (id, after) => `${session(id)}/events?after=${after}`,
  /** @param {string} id @returns {Promise<import('./types.js').FileList>} */
  files: (id) => call('GET', `${session(id)}/files`),
  /** @param {string} id @param {string} path */
  fileUrl: (id, path) => `${session(id)}/files/${encodePath(path)}`,
  /** @param {string} id @param {string} path */
  deleteFile: (id, path) => call('DELETE', `${session(id)}/files/${encodePath(path)}`),
  /** @param {string} id @returns {Promise<{declarations: import('./types.js').Declaration[]}>} */
  declarations: (id) => call('GET', `${session(id)}/declarations`),
  /** @param {string} id @param {string} pattern @param {boolean} keep */
  declare: (id, pattern, keep) => call('POST', `${session(id)}/declarations`, { pattern, keep }),
  /** @param {string} id @param {string} pattern */
  undeclare: (id, pattern) => call('DELETE', `${session(id)}/declarations?pattern=${encodeURIComponent(pattern)}`),
  /** @param {Record<string, string>} query @returns {Promise<{sessions: Session[], next: string | null}>} */
  adminSessions: (query) => call('GET', `${V1}/admin/sessions?${new URLSearchParams(query)}`),
  /** @param {string} id @returns {Promise<import('./types.js').SessionDetail>} */
  adminSession: (id) => call('GET', adminSession(id)),
  /** @param {string} id @param {string} reason_text @returns {Promise<Session>} */
  adminEnd: (id, reason_text) => call('POST', `${adminSession(id)}/end`, { reason_text }),
  /** @param {string} id @param {number} seconds @param {string} reason_text @returns {Promise<Session>} */
  adminExtend: (id, seconds, reason_text) => call('POST', `${adminSession(id)}/extend`, { seconds, reason_text }),
  /** @param {string} id @returns {Promise<Session>} */
  adminRetry: (id) => call('POST', `${adminSession(id)}/retry`, {}),
  /** @param {string} id @param {string} reason_text @returns {Promise<Session>} */
  adminRelease: (id, reason_text) => call('POST', `${adminSession(id)}/release`, { confirm: true, reason_text }),
  /** @param {string} user @param {'disable' | 'enable' | 'end-sessions'} act @param {{tenant: string, sessions?: string, reason_text?: string}} body */
  adminUser: (user, act, body) => call('POST', `${V1}/admin/users/${encodeURIComponent(user)}/${act}`, body),
  /** @returns {Promise<{users: import('./types.js').DisabledUser[]}>} */
  disabledUsers: () => call('GET', `${V1}/admin/disabled-users`),
  /** @param {Record<string, string>} query @returns {Promise<{audit: import('./types.js').AuditEntry[], next: string | null}>} */
  audit: (query) => call('GET', `${V1}/admin/audit?${new URLSearchParams(query)}`),
};
