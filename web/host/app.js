/**
 * The page's state and what can be done with it. Views subscribe to topics; changes are gathered and drawn once a frame.
 *
 * @typedef {import('./types.js').Session} Session
 * @typedef {import('./types.js').StreamEvent} StreamEvent
 * @typedef {'session' | 'sessions' | 'timeline' | 'files' | 'transcript' | 'rebuild' | 'connection' | 'tick' | 'message' | 'route'} Topic
 */
import { api, ApiError } from './api.js';
import { announce } from './dom.js';
import { ServerClock, durationText } from './model/clock.js';
import { rebuildWords } from './model/rebuild.js';
import { fromRecords } from './model/record.js';
import { Timeline } from './model/timeline.js';
import { exitWords, headlineWords } from './model/words.js';
import { EventStream } from './stream.js';

/** Typing keeps a session alive, but never more often than this (P2). */
const TYPING_MS = 60_000;

export class App {
  /** @type {import('./types.js').Me} */
  me;
  clock = new ServerClock();
  /** @type {import('./types.js').Profile[]} */
  profiles = [];
  defaultProfile = '';
  /** @type {Session[]} */
  sessions = [];
  /** @type {Session | null} */
  session = null;
  timeline = new Timeline();
  /** @type {import('./types.js').FileList | null} */
  files = null;
  filesError = '';
  /** What is kept of the open session, without its cells. @type {import('./types.js').Transcript | null} */
  transcript = null;
  /** The latest time that cells were run again. @type {import('./types.js').Rebuild | null} */
  rebuild = null;
  /** @type {import('./stream.js').Connection} */
  connection = 'connecting';
  /** What went wrong or needs saying, shown until dismissed. @type {{text: string, bad: boolean} | null} */
  message = null;

  /** @type {EventStream | null} */
  #stream = null;
  #openId = '';
  /** Events up to this number are a replay: drawn, not announced. */
  #replayUntil = 0;
  /** @type {Map<Topic, Set<() => void>>} */
  #listeners = new Map();
  /** @type {Set<Topic>} */
  #dirty = new Set();
  #scheduled = false;
  #lastTyping = -Infinity;
  #filesTimer = 0;
  #filesTurn = 0;
  #transcriptTimer = 0;

  /** @param {import('./types.js').Me} me */
  constructor(me) {
    this.me = me;
    this.clock.sample(me.server_time, performance.now());
  }

  get now() {
    return this.clock.now(performance.now());
  }

  get isAdmin() {
    return this.me.roles.includes('admin') || this.me.roles.includes('tenant_admin');
  }

  get profile() {
    return this.profiles.find((p) => p.name === this.session?.profile);
  }

  /** @param {Topic[]} topics @param {() => void} draw */
  on(topics, draw) {
    for (const topic of topics) this.#listeners.set(topic, (this.#listeners.get(topic) ?? new Set()).add(draw));
  }

  /** @param {...Topic} topics */
  changed(...topics) {
    for (const topic of topics) this.#dirty.add(topic);
    if (this.#scheduled) return;
    this.#scheduled = true;
    // A hidden tab gets no animation frames, and its title must still change.
    if (document.hidden) setTimeout(() => this.#flush(), 100);
    else requestAnimationFrame(() => this.#flush());
  }

  #flush() {
    this.#scheduled = false;
    const topics = [...this.#dirty];
    this.#dirty.clear();
    const draws = new Set(topics.flatMap((topic) => [...(this.#listeners.get(topic) ?? [])]));
    for (const draw of draws) draw();
  }

  /** A tab that went out of sight between asking for a frame and getting one would stay undrawn. */
  visibilityChanged() {
    if (this.#scheduled && document.hidden) setTimeout(() => this.#flush(), 100);
    if (document.hidden) return;
    this.#stream?.retryNow();
    void this.resync();
  }

  /** @param {string} text */
  say(text, bad = false) {
    this.message = text ? { text, bad } : null;
    this.changed('message');
  }

  /** @template T @param {Promise<T>} promise @returns {Promise<T | null>} null after an error, which is shown */
  async attempt(promise) {
    try {
      return await promise;
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) {
        this.connection = 'unauthenticated';
        this.changed('connection');
      }
      this.say(error instanceof Error ? error.message : String(error), true);
      return null;
    }
  }

  async load() {
    const [profiles] = await Promise.all([this.attempt(api.profiles()), this.refreshSessions()]);
    if (profiles) {
      this.profiles = profiles.profiles;
      this.defaultProfile = profiles.default;
      this.changed('sessions', 'session');
    }
  }

  async refreshSessions() {
    const answer = await this.attempt(api.sessions());
    if (!answer) return;
    this.sessions = answer.sessions;
    for (const session of answer.sessions) this.clock.sample(session.server_time, performance.now());
    this.changed('sessions');
  }

  /** @param {Session | null} session as just answered, or sent in the stream */
  adopt(session) {
    if (!session) return;
    this.clock.sample(session.server_time, performance.now());
    const at = this.sessions.findIndex((s) => s.session_id === session.session_id);
    // An older picture (a replay, a slow answer) never replaces a newer one.
    if (session.server_time < (this.sessions[at]?.server_time ?? '')) return;
    if (at >= 0) this.sessions[at] = session;
    else this.sessions.unshift(session);
    this.changed('sessions');
    if (session.session_id !== this.#openId) return;
    const before = this.session;
    this.session = session;
    if (!before || before.state !== session.state || before.generation !== session.generation) this.filesSoon();
    this.changed('session');
  }

  /** Ask for the session again: after sleep or a change of the computer's clock the countdown may be wrong. */
  async resync() {
    if (!this.#openId) return;
    try {
      this.adopt(await api.session(this.#openId));
    } catch {
      // The stream shows that the gateway cannot be reached; saying it twice helps nobody.
    }
  }

  /** @param {string} id */
  open(id) {
    if (id === this.#openId) return;
    this.#stream?.stop();
    this.#openId = id;
    this.session = this.sessions.find((s) => s.session_id === id) ?? null;
    this.timeline = new Timeline();
    this.files = null;
    this.filesError = '';
    this.transcript = null;
    this.rebuild = null;
    this.#replayUntil = Infinity;
    this.#stream = id ? this.#connect(id) : null;
    if (id) this.filesSoon(0);
    if (id) this.transcriptSoon(0);
    this.changed('route', 'session', 'sessions', 'timeline', 'files', 'transcript', 'rebuild', 'connection');
  }

  /** @param {string} id */
  #connect(id) {
    return new EventStream({
      url: (after) => api.eventsUrl(id, after),
      after: () => Math.max(0, this.timeline.lastId),
      onEvent: (eventId, event) => { if (id === this.#openId) this.#event(eventId, event); },
      onConnection: (connection) => { if (id === this.#openId) this.#connected(id, connection); },
    });
  }

  /** @param {string} id @param {import('./stream.js').Connection} connection */
  #connected(id, connection) {
    this.connection = connection;
    this.changed('connection');
    if (connection === 'ended') void this.#fromRecord(id);
  }

  /** @param {number | null} id @param {StreamEvent} event */
  #event(id, event) {
    if (event.type === 'session') {
      if (!this.timeline.apply(id, event)) return;
      if (id === null && event.session.last_event < this.timeline.lastId) this.#restartStream();
      if (this.#replayUntil === Infinity) this.#replayUntil = event.session.last_event;
      this.adopt(event.session);
      return;
    }
    if (!this.timeline.apply(id, event)) return;
    if (event.type === 'rebuild') {
      this.rebuildChanged(event.rebuild, id !== null && id > this.#replayUntil);
      return;
    }
    this.changed('timeline');
    const live = id !== null && id > this.#replayUntil;
    if (event.type === 'gap') void this.#fromRecord(this.#openId);
    if (event.type === 'execution' && live) this.#announceRun(event.execution);
    if (event.type === 'message' && live && event.msg_type === 'input_request') announce(`A run waits for input: ${event.content.prompt ?? ''}`);
    if (event.type === 'notice' && live) {
      if (!event.kind.endsWith('_warning')) announce(event.text ?? headlineWords(event.kind));
      this.filesSoon();
    }
  }

  /** The journal begins anew, so its numbers mean nothing any more: read it from its start. */
  #restartStream() {
    const id = this.#openId;
    this.#openId = '';
    this.open(id);
  }

  /** @param {import('./types.js').Execution} execution */
  #announceRun(execution) {
    const name = execution.execution_count ? `Run ${execution.execution_count}` : 'A run';
    if (execution.state === 'running') announce(`${name} started`);
    if (execution.state !== 'finished') return;
    const took = execution.duration_ms === null ? '' : ` after ${durationText(execution.duration_ms)}`;
    announce(`${name} finished${took}: ${exitWords(execution.exit_reason)}`);
    this.filesSoon();
    this.transcriptSoon();
  }

  /** What the event journal no longer has, the records and the transcript still tell. @param {string} id */
  async #fromRecord(id) {
    const [executions, notices, cells, rebuild] = await Promise.allSettled([api.executions(id), api.notices(id), allCells(id, 1), api.rebuild(id)]);
    if (id !== this.#openId) return;
    // An ended session lists no executions; what went wrong beyond that, the connection line says.
    fromRecords(this.timeline, {
      executions: executions.status === 'fulfilled' ? executions.value.executions : [],
      notices: notices.status === 'fulfilled' ? notices.value.notices : [],
      cells: cells.status === 'fulfilled' ? cells.value : [],
    });
    if (rebuild.status === 'fulfilled' && !this.rebuild) this.rebuildChanged(rebuild.value, false);
    this.changed('timeline');
  }

  /** @param {import('./types.js').Rebuild} rebuild @param {boolean} live */
  rebuildChanged(rebuild, live) {
    this.rebuild = rebuild;
    if (live && rebuild.state !== 'running') announce([rebuildWords(rebuild).headline, ...rebuildWords(rebuild).lines].join('. '));
    this.changed('rebuild');
  }

  /** Cells that may run again, without their outputs. @returns {Promise<import('./types.js').Cell[] | null>} */
  cellsToRebuild() {
    return this.attempt(allCells(this.#openId, 0));
  }

  /** @param {string[]} cells */
  async runAgain(cells) {
    /** @type {{cells: string[], timeout_s?: number, allow_stdin: boolean}} */
    const body = { cells, allow_stdin: true };
    const limit = this.profile?.limits?.execution_s_person;
    if (limit) body.timeout_s = limit;
    const rebuild = await this.attempt(api.startRebuild(this.#openId, body));
    if (rebuild) this.rebuildChanged(rebuild, false);
  }

  transcriptSoon(delay = 1000) {
    clearTimeout(this.#transcriptTimer);
    this.#transcriptTimer = setTimeout(() => void this.#refreshTranscript(), delay);
  }

  async #refreshTranscript() {
    const id = this.#openId;
    if (!id) return;
    try {
      const transcript = await api.transcript(id, { limit: 0 });
      if (id !== this.#openId) return;
      this.transcript = transcript;
      this.changed('transcript');
    } catch {
      // The panel stays as it was; the connection line says what is wrong.
    }
  }

  async deleteTranscript() {
    const id = this.#openId;
    if ((await this.attempt(api.deleteTranscript(id).then(() => true))) === null || id !== this.#openId) return;
    announce('The transcript was deleted');
    this.#restartStream();
  }

  /** @param {string} executionId */
  async loadStored(executionId) {
    const execution = await this.attempt(api.execution(this.#openId, executionId));
    if (!execution) return;
    this.timeline.stored(execution);
    this.changed('timeline');
  }

  /** @param {string} code */
  async run(code) {
    const id = this.#openId;
    /** @type {{code: string, allow_stdin: boolean, timeout_s?: number}} */
    const body = { code, allow_stdin: true };
    const limit = this.profile?.limits?.execution_s_person;
    if (limit) body.timeout_s = limit;
    const execution = await this.attempt(api.execute(id, body));
    if (!execution || id !== this.#openId) return false;
    this.timeline.submitted(execution, code);
    this.changed('timeline');
    return true;
  }

  /** @param {import('./model/timeline.js').Run} run @param {string} value */
  async answer(run, value) {
    const sent = await this.attempt(api.stdin(this.#openId, run.executionId, value).then(() => true));
    if (!sent) return;
    run.outputs.answered(run.outputs.question?.password ? '••••' : value);
    this.timeline.touched.add(run.key);
    this.changed('timeline');
  }

  /** A person is typing: that is activity, told to the gateway at most once a minute. */
  typing() {
    if (this.session?.state !== 'active' || performance.now() - this.#lastTyping < TYPING_MS) return;
    this.#lastTyping = performance.now();
    api.keepAlive(this.#openId).then((session) => this.adopt(session), () => { this.#lastTyping = -Infinity; });
  }

  filesSoon(delay = 300) {
    clearTimeout(this.#filesTimer);
    this.#filesTimer = setTimeout(() => void this.refreshFiles(), delay);
  }

  async refreshFiles() {
    const id = this.#openId;
    const turn = ++this.#filesTurn;
    if (!id) return;
    try {
      const files = await api.files(id);
      if (turn !== this.#filesTurn) return;
      this.files = files;
      this.filesError = '';
    } catch (error) {
      if (turn !== this.#filesTurn) return;
      this.filesError = error instanceof Error ? error.message : String(error);
    }
    this.changed('files');
  }

  /**
   * Keep a file, or stop keeping it. A declaration of exactly this path that says the opposite is taken back first; only if a
   * pattern still decides otherwise is one made.
   * @param {string} path @param {boolean} keep
   */
  async keep(path, keep) {
    const id = this.#openId;
    const change = async () => {
      const { declarations } = await api.declarations(id);
      if (declarations.some((d) => d.pattern === path && d.keep !== keep)) await api.undeclare(id, path);
      const { files } = await api.files(id);
      if (files.find((f) => f.path === path)?.declared !== keep) await api.declare(id, path, keep);
    };
    await this.attempt(change());
    await this.refreshFiles();
  }
}

/**
 * A transcript page by page.
 * @param {string} id @param {0 | 1} outputs @returns {Promise<import('./types.js').Cell[]>}
 */
async function allCells(id, outputs) {
  const cells = [];
  /** @type {number | null} */
  let after = 0;
  while (after !== null) {
    const page = await api.transcript(id, { after, outputs });
    cells.push(...page.cells);
    after = page.next;
  }
  return cells;
}
