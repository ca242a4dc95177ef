/**
 * A timeline from what is recorded (executions, the transcript's cells, notices), for what the event journal no longer has. Pure.
 *
 * @typedef {import('./timeline.js').Timeline} Timeline
 * @typedef {import('./timeline.js').Run} Run
 * @typedef {import('../types.js').Cell} Cell
 * @typedef {import('../types.js').Execution} Execution
 * @typedef {import('../types.js').Notice} Notice
 */
import { addNotice } from './notices.js';
import { Outputs } from './outputs.js';
import { repeats } from './timeline.js';

/** @param {Cell} cell @returns {Execution} */
function asExecution(cell) {
  const took = cell.started_at ? Date.parse(cell.finished_at) - Date.parse(cell.started_at) : null;
  return {
    execution_id: cell.execution_id, source: cell.source, state: 'finished', position: null, status: null, exit_reason: cell.exit_reason,
    next_action: null, execution_count: cell.execution_count, msg_id: '', truncated: null, generation: cell.generation,
    created_at: cell.created_at, started_at: cell.started_at, finished_at: cell.finished_at, duration_ms: took,
  };
}

/**
 * Bring in what the records know. What events tell already stays as it is; among that, notices' places would be guesses.
 * @param {Timeline} timeline @param {{executions: Execution[], cells: Cell[], notices: Notice[]}} records each oldest first
 */
export function fromRecords(timeline, { executions, cells, notices }) {
  const listed = new Set(executions.map((e) => e.execution_id));
  const all = [...cells.filter((cell) => !listed.has(cell.execution_id)).map(asExecution), ...executions];
  all.sort((a, b) => Date.parse(a.created_at ?? '') - Date.parse(b.created_at ?? ''));
  if (timeline.items.length) timeline.recorded(all);
  else chronicle(timeline, all, notices);
  for (const cell of cells) {
    const run = timeline.runs.get(cell.execution_id);
    if (run?.partial && cell.code !== null) fillIn(timeline, run, cell);
  }
}

/** @param {Timeline} timeline @param {Execution[]} executions @param {Notice[]} notices */
function chronicle(timeline, executions, notices) {
  /** @type {{at: number, tell: () => void}[]} */
  const happened = [];
  for (const execution of executions) {
    const at = Date.parse(execution.started_at ?? execution.created_at ?? '');
    happened.push({ at, tell: () => { timeline.execution(execution).partial = execution.state !== 'queued'; } });
  }
  for (const notice of notices) {
    if (!notice.kind.endsWith('_warning')) happened.push({ at: Date.parse(notice.at), tell: () => addNotice(timeline, notice) });
  }
  happened.sort((a, b) => a.at - b.at);
  for (const { tell } of happened) tell();
}

/** @param {Timeline} timeline @param {Run} run @param {Cell} cell */
function fillIn(timeline, run, cell) {
  run.code = cell.code;
  run.partial = false;
  run.leftOut = cell.left_out_bytes;
  run.outputs = new Outputs();
  for (const output of cell.outputs ?? []) {
    const text = joined(output.text);
    if (output.output_type === 'stream' && !repeats(timeline.said, text)) run.outputs.stream(String(output.name), text);
    else if (output.output_type === 'error') run.outputs.error(String(output.ename), String(output.evalue), output.traceback ?? []);
    else if (output.data) run.outputs.rich(output.data, output.metadata ?? {}, null, output.execution_count ?? null);
  }
  timeline.touched.add(run.key);
}

/** @param {unknown} text nbformat's: a string, or its lines */
function joined(text) {
  return Array.isArray(text) ? text.join('') : String(text ?? '');
}
