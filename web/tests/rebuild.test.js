import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cellAbout, cellTitle, policyWords, rebuildWords } from '../host/model/rebuild.js';

const rebuild = (more) => ({
  rebuild_id: 'r', state: 'running', generation: 2, done: 0, total: 3, stopped_at: null, detail: '', lost_variables: ['a', 'b'], back: [], missing: ['a', 'b'], ...more,
});

test('how far it is, and what came back', () => {
  assert.deepEqual(rebuildWords(rebuild({ done: 1, back: ['a'], missing: ['b'] })), { headline: 'Running again: cell 2 of 3', lines: ['Variables back: a', 'Still missing: b'], bad: false });
  assert.equal(rebuildWords(rebuild({ done: 3 })).headline, 'Running again: cell 3 of 3');
  assert.deepEqual(rebuildWords(rebuild({ state: 'done', done: 3, back: ['a', 'b'], missing: [] })), {
    headline: 'All 3 cells ran again', lines: ['Variables back: a, b', 'Every variable that was lost is back.'], bad: false,
  });
  assert.deepEqual(rebuildWords(rebuild({ state: 'done', done: 3, back: ['a'], missing: ['b'] })).lines, ['Variables back: a', 'Not back: b']);
  assert.equal(rebuildWords(rebuild({ state: 'done', done: 1, total: 1 })).headline, 'The cell ran again');
});

test('an error, and a restart of the gateway, are said', () => {
  const stopped = rebuildWords(rebuild({ state: 'stopped', done: 2, detail: 'The code raised an error.', stopped_at: { cell: 'x', execution_id: 'y', exit_reason: 'code_error' } }));
  assert.deepEqual(stopped, { headline: 'Running again stopped: 1 of 3 cells succeeded', lines: ['The code raised an error.', 'Not back: a, b'], bad: true });
  assert.equal(rebuildWords(rebuild({ state: 'cut', done: 1, detail: 'Restarted.' })).bad, true);
});

test('a cell is known by its first line that says something', () => {
  const cell = (code, more = {}) => ({ code, generation: 1, succeeded: true, exit_reason: 'ok', started_at: '2026-01-31T10:00:00Z', finished_at: '2026-01-31T10:00:02Z', ...more });
  assert.deepEqual(cellTitle(cell('\n# load\n\nimport pandas\ndf = 1\n')), { first: 'import pandas', more: 2 });
  assert.deepEqual(cellTitle(cell('# only this')), { first: '# only this', more: 0 });
  assert.deepEqual(cellTitle(cell('  \n')), { first: 'empty', more: 0 });
  assert.equal(cellTitle(cell('x'.repeat(500))).first.length, 100);
  assert.equal(cellAbout(cell('x')), 'generation 1 · took 2.0 s');
  assert.match(cellAbout(cell('x', { succeeded: false, exit_reason: 'code_error', started_at: null })), /^generation 1 · The code raised/);
});

test('the policy is said to its user', () => {
  const words = (policy, retained_s = 30 * 86_400) => policyWords({ policy, retained_s });
  assert.match(words('full'), /your own document.*30 days after the session ends, unless you delete it/);
  assert.match(words('hash'), /only hashes/);
  assert.match(words('off'), /no code and no output/);
  assert.match(words('full', 3600), /until a day after/);
});
