import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cpuMs } from './cpu.js';
import { activeWarnings } from '../host/model/notices.js';
import { fromRecords } from '../host/model/record.js';
import { Timeline } from '../host/model/timeline.js';

let number = 0;
const T = '2026-01-31T10:00:00.000000Z';
const later = (s) => new Date(Date.parse(T) + s * 1000).toISOString();

const execution = (id, state, more = {}) => ({
  type: 'execution',
  execution: {
    execution_id: id, source: 'rest', state, position: null, status: state === 'finished' ? 'ok' : null,
    exit_reason: state === 'finished' ? 'ok' : null, next_action: null, execution_count: null, msg_id: `m-${id}`, truncated: null,
    notices: [], generation: 1, created_at: T, started_at: state === 'queued' ? null : T,
    finished_at: state === 'finished' ? later(2) : null, duration_ms: state === 'finished' ? 2000 : null, ...more,
  },
});
const message = (id, msg_type, content, more = {}) => ({
  type: 'message', channel: 'iopub', msg_type, msg_id: `x${number++}`, parent_msg_id: id ? `m-${id}` : '', execution_id: id, content, metadata: {}, date: T, ...more,
});
const stream = (id, text, name = 'stdout') => message(id, 'stream', { name, text });
const notice = (kind, more = {}) => ({ type: 'notice', notice_id: `n${number++}`, kind, generation: 2, at: T, text: '', reason: '', ...more });

/** A timeline after events numbered 1, 2, 3 ... */
function after(...events) {
  const timeline = new Timeline();
  events.forEach((event, i) => timeline.apply(i + 1, event));
  return timeline;
}
const texts = (run) => run.outputs.list.map((o) => (o.kind === 'stream' ? `${o.name}:${o.text.plain()}` : o.kind));
const shape = (timeline) => timeline.items.map((i) => (i.kind === 'run' ? i.executionId : i.kind));

test('a run from queue to end', () => {
  const t = after(execution('a', 'queued'), execution('a', 'running'), message('a', 'execute_input', { code: 'print(1)', execution_count: 3 }),
    stream('a', '1\n'), message('a', 'execute_reply', { status: 'ok' }, { channel: 'shell' }), execution('a', 'finished', { execution_count: 3 }));
  const run = t.runs.get('a');
  assert.deepEqual(shape(t), ['a']);
  assert.equal(run.state, 'finished');
  assert.equal(run.code, 'print(1)');
  assert.equal(run.count, 3);
  assert.equal(run.durationMs, 2000);
  assert.deepEqual(texts(run), ['stdout:1\n']);
});

test('every event counts once, whatever is replayed', () => {
  const t = new Timeline();
  const events = [execution('a', 'running'), stream('a', 'x'), stream('a', 'y')];
  events.forEach((e, i) => t.apply(i + 1, e));
  events.forEach((e, i) => assert.equal(t.apply(i + 1, e), false));
  assert.deepEqual(texts(t.runs.get('a')), ['stdout:xy']);
  assert.equal(t.lastId, 3);
  t.apply(9, stream('a', 'z'));
  assert.deepEqual(texts(t.runs.get('a')), ['stdout:xyz']);
});

test('an event without a number is applied and leaves the position alone', () => {
  const t = after(execution('a', 'running'));
  assert.equal(t.apply(null, { type: 'session', session: {} }), true);
  assert.equal(t.lastId, 1);
});

test('streams join by name, in order', () => {
  const t = after(execution('a', 'running'), stream('a', '1'), stream('a', '2'), stream('a', 'e', 'stderr'), stream('a', '3'));
  assert.deepEqual(texts(t.runs.get('a')), ['stdout:12', 'stderr:e', 'stdout:3']);
});

test('what another client runs appears too, with its code', () => {
  const t = after(execution('j', 'queued', { source: 'jupyter' }), message('j', 'execute_input', { code: 'x', execution_count: 1 }));
  const run = t.runs.get('j');
  assert.equal(run.source, 'jupyter');
  assert.equal(run.state, 'running');
  assert.equal(run.code, 'x');
});

test('a message that names no execution finds its run by the request', () => {
  const t = after(execution('a', 'running'), { ...stream(null, 'late'), parent_msg_id: 'm-a' });
  assert.deepEqual(texts(t.runs.get('a')), ['stdout:late']);
});

test('the answer to a POST may come before or after the events', () => {
  const early = new Timeline();
  early.submitted(execution('a', 'queued').execution, 'code');
  early.apply(1, execution('a', 'queued'));
  assert.deepEqual(shape(early), ['a']);
  assert.equal(early.runs.get('a').code, 'code');

  const late = after(execution('a', 'finished'));
  late.submitted(execution('a', 'queued').execution, 'code');
  assert.equal(late.runs.get('a').state, 'finished');
  assert.equal(late.runs.get('a').code, 'code');
});

test('positions of the waiting', () => {
  const t = after(execution('a', 'running'), execution('b', 'queued'), execution('c', 'queued'));
  assert.equal(t.position(t.runs.get('b')), 1);
  assert.equal(t.position(t.runs.get('c')), 2);
  assert.equal(t.position(t.runs.get('a')), null);
  t.apply(9, execution('b', 'finished'));
  assert.equal(t.position(t.runs.get('c')), 1);
  assert.ok(t.touched.has('run-c'));
});

test('rich outputs, and updates by display id wherever they are', () => {
  const shown = (id, v) => message(id, 'display_data', { data: { 'text/plain': v }, metadata: {}, transient: { display_id: 'd' } });
  const t = after(execution('a', 'running'), shown('a', '1'), execution('a', 'finished'), execution('b', 'running'), shown('b', '2'));
  t.touched.clear();
  t.apply(9, message('b', 'update_display_data', { data: { 'text/plain': 'new' }, metadata: {}, transient: { display_id: 'd' } }));
  for (const id of ['a', 'b']) {
    const [output] = t.runs.get(id).outputs.list;
    assert.equal(output.data['text/plain'], 'new');
    assert.equal(output.version, 1);
    assert.ok(t.touched.has(`run-${id}`));
  }
});

test('results carry their number', () => {
  const t = after(execution('a', 'running'), message('a', 'execute_result', { data: { 'text/plain': '2' }, metadata: {}, execution_count: 5 }));
  assert.equal(t.runs.get('a').outputs.list[0].count, 5);
});

test('clear_output now and at the next output', () => {
  const t = after(execution('a', 'running'), stream('a', 'x'), message('a', 'clear_output', { wait: false }), stream('a', 'y'), message('a', 'clear_output', { wait: true }));
  assert.deepEqual(texts(t.runs.get('a')), ['stdout:y']);
  t.apply(9, stream('a', 'z'));
  assert.deepEqual(texts(t.runs.get('a')), ['stdout:z']);
  t.apply(10, stream('a', '!'));
  assert.deepEqual(texts(t.runs.get('a')), ['stdout:z!']);
});

test('errors', () => {
  const t = after(execution('a', 'running'), message('a', 'error', { ename: 'E', evalue: 'v', traceback: ['t'] }));
  const [error] = t.runs.get('a').outputs.list;
  assert.deepEqual([error.kind, error.name, error.value, error.traceback], ['error', 'E', 'v', ['t']]);
});

test('a question waits until something comes after it', () => {
  const ask = message('a', 'input_request', { prompt: 'Name? ', password: false }, { channel: 'stdin' });
  const t = after(execution('a', 'running'), ask);
  const run = t.runs.get('a');
  assert.equal(run.outputs.question.prompt, 'Name? ');
  t.apply(9, stream('a', 'hi'));
  assert.equal(run.outputs.question, null);
  const ended = after(execution('a', 'running'), ask, execution('a', 'finished'));
  assert.equal(ended.runs.get('a').outputs.question, null);
});

test('a pager’s text is an output', () => {
  const t = after(execution('a', 'running'), message('a', 'execute_reply', { status: 'ok', payload: [{ source: 'page', data: { 'text/plain': 'help' } }] }, { channel: 'shell' }));
  assert.deepEqual(texts(t.runs.get('a')), ['rich']);
});

test('output of no known run is shown apart', () => {
  const t = after(stream(null, 'thread'), stream(null, ' goes on'), message(null, 'clear_output', {}), message(null, 'comm_open', {}));
  assert.deepEqual(shape(t), ['loose']);
  assert.equal(t.items[0].outputs.list[0].text.plain(), 'thread goes on');
});

test('a recycle is one divider, whatever the order of its notices', () => {
  const df = { name: 'df', type: 'DataFrame', size: 10 };
  const parts = [
    notice('variables_lost', { reason: 'idle_timeout', variables: [df] }),
    notice('recycled', { reason: 'idle_timeout', kept_files: [{ path: 'out/r.xlsx', sha256: 'abc' }] }),
    notice('files_lost', { reason: 'idle_timeout', files: ['scratch.txt'] }),
  ];
  for (const order of [[0, 1, 2], [1, 0, 2], [2, 1, 0]]) {
    const t = after(execution('a', 'finished'), ...order.map((i) => parts[i]));
    assert.deepEqual(shape(t), ['a', 'divider']);
    const divider = t.items[1];
    assert.equal(divider.headline, 'recycled');
    assert.equal(divider.reason, 'idle_timeout');
    assert.deepEqual(divider.lost, [df]);
    assert.deepEqual(divider.lostFiles, [{ path: 'scratch.txt' }]);
    assert.deepEqual(divider.kept, [{ path: 'out/r.xlsx', sha256: 'abc' }]);
    assert.deepEqual([...t.earlier()], ['run-a']);
  }
});

test('the next run is marked as the first in the new sandbox; what was restored joins the divider', () => {
  const t = after(execution('a', 'finished'), notice('variables_lost', { variables: [{ name: 'df', type: 'DataFrame' }] }), notice('recycled', { reason: 'idle_timeout' }),
    execution('b', 'queued'), notice('restored', { files: [{ path: 'out/r', sha256: 'ff' }], failed: [] }), execution('b', 'running'), execution('b', 'finished'), execution('c', 'running'));
  assert.deepEqual(shape(t), ['a', 'divider', 'b', 'c']);
  const divider = t.items[1];
  assert.deepEqual(divider.restored, [{ path: 'out/r', sha256: 'ff' }]);
  assert.equal(divider.closed, true);
  assert.equal(t.runs.get('b').fresh, divider.key);
  assert.equal(t.runs.get('c').fresh, null);
});

test('a run that waited over a recycle moves behind the divider; one that was cancelled stays', () => {
  const t = after(execution('a', 'running'), execution('b', 'queued'), execution('c', 'queued'), notice('recycled', { reason: 'user' }),
    execution('b', 'finished', { started_at: null, exit_reason: 'sandbox_ended' }), execution('c', 'running'));
  assert.deepEqual(shape(t), ['a', 'b', 'divider', 'c']);
});

test('two losses are two dividers', () => {
  const t = after(notice('recycled', { reason: 'user' }), execution('a', 'running'), execution('a', 'finished'), notice('recycled', { reason: 'idle_timeout', generation: 3 }));
  assert.deepEqual(shape(t), ['divider', 'a', 'divider']);
  const restarts = after(notice('kernel_restarted', { reason: 'restart' }), notice('kernel_restarted', { reason: 'restart', generation: 3 }));
  assert.deepEqual(shape(restarts), ['divider', 'divider']);
});

test('a session that ends takes its sandbox along: one divider', () => {
  const lost = { name: 'x', type: 'int' };
  const together = after(notice('variables_lost', { reason: 'admin', variables: [lost] }), notice('recycled', { reason: 'admin' }), notice('ended', { reason: 'admin', at: later(3) }));
  assert.deepEqual(shape(together), ['divider']);
  assert.equal(together.items[0].headline, 'ended');
  assert.deepEqual(together.items[0].lost, [lost]);
  const apart = after(notice('recycled', { reason: 'idle_timeout' }), notice('ended', { reason: 'user', at: later(3600) }));
  assert.deepEqual(shape(apart), ['divider', 'divider']);
});

test('a notice that comes again is no second one', () => {
  const once = notice('recycled', { reason: 'user' });
  const t = after(once, execution('a', 'running'), once);
  assert.deepEqual(shape(t), ['divider', 'a']);
});

test('a kernel’s death is a divider with its own words', () => {
  const t = after(execution('a', 'running'), notice('variables_lost', { reason: 'memory_limit', variables: [] }), notice('kernel_died', { reason: 'memory_limit' }), execution('a', 'finished', { exit_reason: 'memory_limit' }));
  assert.equal(t.items[1].headline, 'kernel_died');
  assert.deepEqual(shape(t), ['a', 'divider']);
});

test('other notices are notes, and a cut output’s belongs to its run', () => {
  const t = after(execution('a', 'running'), notice('start_failed', { text: 'No.' }), notice('output_truncated', { execution_id: 'a', text: 'cut' }), notice('restored', { files: [] }));
  assert.deepEqual(shape(t), ['a', 'note', 'note']);
  assert.equal(t.runs.get('a').notices.length, 1);
});

test('what the gateway writes into outputs for other clients is not shown twice', () => {
  const t = after(notice('variables_lost', { text: 'Variables lost (x): df.', variables: [] }), stream(null, '\n[Sandglass: Variables lost (x): df. The next execution opens a new one.]\n', 'stderr'),
    execution('a', 'running'), stream('a', '[Sandglass: Variables lost (x): df.]\n', 'stderr'), stream('a', '[Sandglass: the output limit is reached]\n', 'stderr'));
  assert.deepEqual(shape(t), ['divider', 'a']);
  assert.deepEqual(texts(t.runs.get('a')), ['stderr:[Sandglass: the output limit is reached]\n']);
});

test('a gap says so, and the record fills in before it', () => {
  const t = after({ type: 'gap', after: 0, oldest: 50 }, stream('b', 'tail'), execution('b', 'running'));
  t.recorded([execution('a', 'finished').execution, execution('b', 'running').execution]);
  assert.deepEqual(shape(t), ['a', 'gap', 'b']);
  assert.equal(t.runs.get('a').partial, true);
  assert.equal(t.runs.get('b').partial, true);
  t.stored({ ...execution('a', 'finished').execution, stdout: 'out', stderr: '', results: [{ data: { 'text/plain': '1' } }], error: { name: 'E', value: 'v', traceback: [] } });
  assert.deepEqual(texts(t.runs.get('a')), ['stdout:out', 'rich', 'error']);
  assert.equal(t.runs.get('a').partial, false);
});

test('the record of a session without events', () => {
  const t = new Timeline();
  t.recorded([execution('a', 'finished').execution, execution('b', 'finished').execution]);
  assert.deepEqual(shape(t), ['a', 'b']);
});

const cell = (id, at, more = {}) => ({
  execution_id: id, generation: 1, source: 'rest', exit_reason: 'ok', succeeded: true, execution_count: 1, created_at: later(at), started_at: later(at),
  finished_at: later(at + 1), code: `code of ${id}`, output_bytes: 5, left_out_bytes: 0, outputs: [{ output_type: 'stream', name: 'stdout', text: `out of ${id}` }], ...more,
});

test('a session without events, from its transcript: runs and losses in the order of time', () => {
  const t = new Timeline();
  const lost = notice('recycled', { reason: 'user', at: later(5), text: 'Ended.', variables: [] });
  const error = [{ output_type: 'error', ename: 'E', evalue: 'v', traceback: [] }, { output_type: 'display_data', data: { 'text/plain': '1' }, metadata: {} }];
  fromRecords(t, {
    executions: [], notices: [lost, notice('idle_warning', { deadline: T, at: later(3) })],
    cells: [cell('a', 0), cell('b', 9, { generation: 2, outputs: [{ output_type: 'stream', name: 'stderr', text: '[Sandglass: Ended.]\n' }, ...error], left_out_bytes: 7 })],
  });
  assert.deepEqual(shape(t), ['a', 'divider', 'b']);
  assert.equal(t.warnings.size, 0);
  const [a, b] = [t.runs.get('a'), t.runs.get('b')];
  assert.deepEqual([a.code, a.partial, a.state, a.durationMs, texts(a)], ['code of a', false, 'finished', 1000, ['stdout:out of a']]);
  assert.deepEqual([b.leftOut, texts(b), b.fresh], [7, ['error', 'rich'], t.items[1].key], 'what a notice says is not said twice');
  assert.deepEqual([...t.earlier()], ['run-a']);
});

test('what events tell stays as they tell it; the transcript fills in before the gap', () => {
  const t = after({ type: 'gap', after: 0, oldest: 50 }, execution('b', 'running'), message('b', 'execute_input', { code: 'live', execution_count: 2 }), stream('b', 'live'), execution('b', 'finished'));
  fromRecords(t, { executions: [execution('b', 'finished').execution], notices: [notice('recycled', { reason: 'user' })], cells: [cell('a', -9), cell('b', 0)] });
  assert.deepEqual(shape(t), ['a', 'gap', 'b']);
  assert.deepEqual([t.runs.get('b').code, texts(t.runs.get('b'))], ['live', ['stdout:live']]);
  assert.deepEqual([t.runs.get('a').code, t.runs.get('a').partial], ['code of a', false]);
});

test('a cell of which no code is kept stays a mere record', () => {
  const t = new Timeline();
  fromRecords(t, { executions: [], notices: [], cells: [cell('a', 0, { code: null, outputs: [] })] });
  assert.deepEqual([t.runs.get('a').code, t.runs.get('a').partial], [null, true]);
});

test('what an output looks like it contains', () => {
  const found = (kinds) => message('a', 'stream', { name: 'stdout', text: 'x' }, { sensitive: kinds });
  const t = after(execution('a', 'running'), stream('a', 'plain'));
  assert.deepEqual(t.runs.get('a').sensitive, []);
  t.apply(3, found(['token', 'api_key']));
  t.apply(4, found(['token']));
  t.apply(5, execution('a', 'finished'));
  assert.deepEqual(t.runs.get('a').sensitive, ['api_key', 'token']);
});

test('warnings in force', () => {
  const now = Date.parse(T);
  const deadline = later(60);
  const session = { state: 'active', idle_paused: false, idle_deadline: deadline, max_deadline: later(7200), warnings: [] };
  const t = after(notice('idle_warning', { deadline, variables: [{ name: 'df', type: 'DataFrame' }], undeclared_files: ['x'] }));
  assert.equal(activeWarnings(session, t, now).length, 1);
  assert.deepEqual(activeWarnings(session, t, now)[0].variables.map((v) => v.name), ['df']);
  assert.deepEqual(activeWarnings({ ...session, idle_deadline: later(1200) }, t, now), [], 'kept alive');
  assert.deepEqual(activeWarnings({ ...session, idle_paused: true }, t, now), [], 'busy');
  assert.deepEqual(activeWarnings({ ...session, state: 'dormant' }, t, now), [], 'over');
  assert.deepEqual(activeWarnings(session, t, Date.parse(later(61))), [], 'past');
  const max = { kind: 'max_warning', at: T, deadline: later(30), reason: 'max_lifetime' };
  assert.deepEqual(activeWarnings({ ...session, max_deadline: later(30), warnings: [max] }, t, now).map((w) => w.kind), ['max_warning', 'idle_warning']);
});

test('a long timeline stays quick', () => {
  const t = new Timeline();
  const started = cpuMs();
  let id = 0;
  for (let i = 0; i < 300; i++) {
    t.apply(++id, execution(`r${i}`, 'running'));
    for (let j = 0; j < 200; j++) t.apply(++id, stream(`r${i}`, 'line\n'));
    t.apply(++id, execution(`r${i}`, 'finished'));
  }
  assert.equal(t.items.length, 300);
  assert.ok(cpuMs() - started < 3000);
});
