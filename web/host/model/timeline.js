/**
 * Events in, timeline out. No DOM, no clock, no I/O: a test is a list of events and the timeline expected.
 *
 * The order is that of first appearance in the event stream, except that a run which waited while its sandbox ended moves behind
 * the divider when it starts: it belongs to the new sandbox.
 *
 * @typedef {import('../types.js').StreamEvent} StreamEvent
 * @typedef {import('../types.js').Execution} Execution
 * @typedef {import('../types.js').Notice} Notice
 * @typedef {import('../types.js').Variable} Variable
 * @typedef {import('../types.js').FileRef} FileRef
 *
 * @typedef {object} Run
 * @property {'run'} kind
 * @property {string} key
 * @property {string} executionId
 * @property {string | null} code
 * @property {'jupyter' | 'rest' | null} source
 * @property {'queued' | 'running' | 'finished'} state
 * @property {string | null} status
 * @property {string | null} exitReason
 * @property {string | null} nextAction
 * @property {number | null} count
 * @property {number | null} generation
 * @property {string | null} createdAt
 * @property {string | null} startedAt
 * @property {string | null} finishedAt
 * @property {number | null} durationMs
 * @property {Outputs} outputs
 * @property {{bytes_dropped: number, messages_dropped: number} | null} truncated
 * @property {Notice[]} notices
 * @property {string | null} fresh  the key of the divider after which this was the first run
 * @property {boolean} partial  some of its events are no longer kept
 * @property {string[]} sensitive  what its output looks like it contains, by kinds
 * @property {number} leftOut  bytes of output that the transcript did not keep, for a run that is shown from there
 *
 * @typedef {object} Divider
 * @property {'divider'} kind
 * @property {string} key
 * @property {string} headline  the notice kind that names what happened
 * @property {string} at
 * @property {number} generation
 * @property {string} reason
 * @property {string[]} texts
 * @property {Variable[]} lost
 * @property {FileRef[]} lostFiles
 * @property {FileRef[]} kept
 * @property {FileRef[]} restored
 * @property {FileRef[]} failed
 * @property {string[]} said  an admin's own words
 * @property {boolean} closed  a run has started since
 *
 * @typedef {{kind: 'note', key: string, notice: Notice}} Note
 * @typedef {{kind: 'gap', key: string, after: number, oldest: number}} Gap
 * @typedef {{kind: 'loose', key: string, outputs: Outputs}} Loose
 * @typedef {Run | Divider | Note | Gap | Loose} Item
 */
import { addNotice } from './notices.js';
import { Outputs } from './outputs.js';

export class Timeline {
  /** @type {Item[]} */
  items = [];
  /** @type {Map<string, Run>} */
  runs = new Map();
  /** Requests by message id, for messages that name no execution. @type {Map<string, Run>} */
  byRequest = new Map();
  /** @type {Map<string, import('./outputs.js').RichOutput[]>} */
  displays = new Map();
  /** @type {Map<import('./outputs.js').RichOutput, string>} */
  displayOwner = new Map();
  /** @type {Set<string>} */
  noticeIds = new Set();
  /** What notices say, because the gateway says it in a kernel's output too, for clients that know no notices. @type {Set<string>} */
  said = new Set();
  /** The latest warning of each kind. @type {Map<string, Notice>} */
  warnings = new Map();
  /** The number of the last event applied; a repeat is ignored. */
  lastId = -1;
  /** Keys of items that changed since the view last looked. @type {Set<string>} */
  touched = new Set();
  /** Grows when items were added or moved. */
  order = 0;
  #loose = 0;

  /** @param {Item} item @param {number} [at] */
  add(item, at = this.items.length) {
    this.items.splice(at, 0, item);
    this.touched.add(item.key);
    this.order++;
  }

  /** @returns {Divider | null} */
  lastDivider() {
    for (let i = this.items.length - 1; i >= 0; i--) {
      const item = this.items[i];
      if (item?.kind === 'divider') return item;
    }
    return null;
  }

  /** Position among the waiting runs, from 1. @param {Run} run */
  position(run) {
    let n = 0;
    for (const item of this.items) {
      if (item.kind !== 'run' || item.state !== 'queued') continue;
      n++;
      if (item === run) return n;
    }
    return null;
  }

  /** Runs above the last divider belong to a sandbox, or a kernel, that is gone. @returns {Set<string>} */
  earlier() {
    /** @type {Set<string>} */
    const keys = new Set();
    const divider = this.lastDivider();
    if (divider) {
      for (const item of this.items) {
        if (item === divider) break;
        if (item.kind === 'run' && item.state === 'finished') keys.add(item.key);
      }
    }
    return keys;
  }

  /**
   * @param {number | null} id @param {StreamEvent} event
   * @returns {boolean} false for an event that was seen before
   */
  apply(id, event) {
    if (id !== null) {
      if (id <= this.lastId) return false;
      this.lastId = id;
    }
    if (event.type === 'message') this.#message(event);
    else if (event.type === 'execution') this.execution(event.execution);
    else if (event.type === 'notice') addNotice(this, event);
    else if (event.type === 'gap') this.#gap(event.after, event.oldest);
    return true;
  }

  /** What this page sent itself: the code is known before the kernel echoes it. @param {Execution} execution @param {string} code */
  submitted(execution, code) {
    const run = this.execution(execution);
    run.code ??= code;
    return run;
  }

  /** @param {Execution} execution @returns {Run} */
  execution(execution) {
    const run = this.#run(execution.execution_id);
    if (run.state === 'queued' && execution.started_at && execution.state !== 'queued') this.#started(run);
    return this.#merge(run, execution);
  }

  /** @param {Run} run @param {Execution} execution */
  #merge(run, execution) {
    // A finished run stays finished: the answer to a POST may be older than the events that overtook it.
    const rank = { queued: 0, running: 1, finished: 2 };
    if (rank[execution.state] >= rank[run.state]) {
      run.state = execution.state;
      run.status = execution.status;
      run.exitReason = execution.exit_reason;
      run.nextAction = execution.next_action;
      run.truncated = execution.truncated ?? run.truncated;
      run.startedAt = execution.started_at ?? run.startedAt;
      run.finishedAt = execution.finished_at;
      run.durationMs = execution.duration_ms;
      run.generation = execution.generation;
      run.count = execution.execution_count ?? run.count;
      if (execution.notices?.length) run.notices = execution.notices;
    }
    run.createdAt = execution.created_at;
    run.source = execution.source;
    if (execution.msg_id) this.byRequest.set(execution.msg_id, run);
    if (run.state === 'finished') run.outputs.answered();
    this.touched.add(run.key);
    for (const item of this.items) if (item.kind === 'run' && item.state === 'queued') this.touched.add(item.key);
    return run;
  }

  /** Outputs read from the record, for a run whose events are no longer kept. @param {Execution} execution */
  stored(execution) {
    const run = this.execution(execution);
    run.outputs = new Outputs();
    if (execution.stdout) run.outputs.stream('stdout', execution.stdout);
    if (execution.stderr) run.outputs.stream('stderr', execution.stderr);
    for (const result of execution.results ?? []) run.outputs.rich(result.data, result.metadata ?? {}, null, null);
    if (execution.error) run.outputs.error(execution.error.name, execution.error.value, execution.error.traceback);
    run.partial = false;
    this.touched.add(run.key);
  }

  /**
   * The list of executions as recorded: those whose events are gone appear before the gap, marked as partial.
   * @param {Execution[]} executions oldest first
   */
  recorded(executions) {
    const gap = this.items.findIndex((item) => item.kind === 'gap');
    let at = gap === -1 ? this.items.length : gap;
    for (const execution of executions) {
      const known = this.runs.get(execution.execution_id);
      const run = this.#merge(known ?? this.#run(execution.execution_id, at++), execution);
      if (run.state !== 'queued' && (!known || run.code === null)) run.partial = true;
    }
  }

  /** @param {string} executionId @param {number} [at] where a new one goes @returns {Run} */
  #run(executionId, at = this.items.length) {
    let run = this.runs.get(executionId);
    if (!run) {
      run = {
        kind: 'run', key: 'run-' + executionId, executionId, code: null, source: null, state: 'queued', status: null,
        exitReason: null, nextAction: null, count: null, generation: null, createdAt: null, startedAt: null, finishedAt: null,
        durationMs: null, outputs: new Outputs(), truncated: null, notices: [], fresh: null, partial: false, sensitive: [], leftOut: 0,
      };
      this.runs.set(executionId, run);
      this.add(run, at);
    }
    return run;
  }

  /** @param {Run} run */
  #started(run) {
    const divider = this.lastDivider();
    if (!divider) return;
    const at = this.items.indexOf(run);
    if (at < this.items.indexOf(divider)) {
      this.items.splice(at, 1);
      this.items.splice(this.items.indexOf(divider) + 1, 0, run);
      this.order++;
    }
    if (!divider.closed) {
      divider.closed = true;
      this.touched.add(divider.key);
      run.fresh = divider.key;
    }
  }

  /** @param {import('../types.js').KernelMessage} message */
  #message(message) {
    const { msg_type: type, content } = message;
    if (type === 'status' || type.startsWith('comm_')) return;
    const run = message.execution_id ? this.#run(message.execution_id) : this.byRequest.get(message.parent_msg_id);
    if (type === 'update_display_data') return this.#update(content);
    if (run && message.sensitive) run.sensitive = [...new Set([...run.sensitive, ...message.sensitive])].sort();
    if (type === 'execute_input' && run) {
      run.code = String(content.code ?? '');
      run.count = content.execution_count ?? run.count;
      if (run.state === 'queued') {
        this.#started(run);
        run.state = 'running';
        run.startedAt ??= message.date ?? null;
      }
    } else if (type === 'execute_reply' && run) {
      run.outputs.answered();
      for (const page of content.payload ?? []) if (page?.source === 'page' && page.data) run.outputs.rich(page.data, {}, null, null);
    } else this.#output(run ? run.outputs : this.#looseOutputs(type, content), run, type, message);
    if (run) this.touched.add(run.key);
  }

  /** @param {Outputs | null} outputs @param {Run | undefined} run @param {string} type @param {import('../types.js').KernelMessage} message */
  #output(outputs, run, type, message) {
    if (!outputs) return;
    const { content } = message;
    if (type === 'stream' && repeats(this.said, String(content.text ?? ''))) return;
    if (type === 'stream') outputs.stream(String(content.name), String(content.text ?? ''));
    else if (type === 'display_data' || type === 'execute_result') {
      const id = content.transient?.display_id ?? null;
      const count = type === 'execute_result' ? (content.execution_count ?? null) : null;
      const output = outputs.rich(content.data ?? {}, content.metadata ?? {}, id, count);
      if (id) {
        this.displays.set(id, [...(this.displays.get(id) ?? []), output]);
        if (run) this.displayOwner.set(output, run.key);
      }
    } else if (type === 'error') outputs.error(String(content.ename), String(content.evalue), content.traceback ?? []);
    else if (type === 'clear_output') outputs.clear(Boolean(content.wait));
    else if (type === 'input_request' && run) outputs.input(String(content.prompt ?? ''), Boolean(content.password));
  }

  /** @param {Record<string, any>} content */
  #update(content) {
    for (const output of this.displays.get(content.transient?.display_id) ?? []) {
      output.data = content.data ?? {};
      output.metadata = content.metadata ?? {};
      output.version++;
      const owner = this.displayOwner.get(output);
      if (owner) this.touched.add(owner);
    }
  }

  /** Output that belongs to no run we know, such as a thread's of a run no longer kept. @param {string} type @param {Record<string, any>} content */
  #looseOutputs(type, content) {
    if (!['stream', 'display_data', 'execute_result', 'error'].includes(type)) return null;
    if (type === 'stream' && repeats(this.said, String(content.text ?? ''))) return null;
    const last = this.items.at(-1);
    if (last?.kind === 'loose') {
      this.touched.add(last.key);
      return last.outputs;
    }
    const outputs = new Outputs();
    this.add({ kind: 'loose', key: 'loose-' + this.#loose++, outputs });
    return outputs;
  }

  /** @param {number} after @param {number} oldest */
  #gap(after, oldest) {
    for (const run of this.runs.values()) {
      if (run.state === 'finished') continue;
      run.partial = true;
      this.touched.add(run.key);
    }
    this.add({ kind: 'gap', key: `gap-${oldest}`, after, oldest });
  }
}

/**
 * Is a text nothing but notices that the timeline shows by itself?
 * @param {Set<string>} said @param {string} text
 */
export function repeats(said, text) {
  if (!said.size || !text.includes('[Sandglass: ')) return false;
  const rest = text.split('\n').filter((line) => {
    const told = /^\[Sandglass: (.*)\]$/.exec(line)?.[1];
    return line !== '' && !(told && [...said].some((s) => told.startsWith(s)));
  });
  return rest.length === 0;
}
