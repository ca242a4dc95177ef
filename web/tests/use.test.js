/** What sandboxes used over time. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { UseHistory, linePath } from '../host/model/use.js';

const look = (second, memory_bytes, cpu_s, sandbox_id = 'a', session_id = 's') => ({
  session_id, sandbox_id, resources: { memory_bytes, cpu_s, pids: 3, as_of: new Date(Date.UTC(2026, 0, 31) + second * 1000).toISOString() },
});

test('processor use is what was used between two looks, and starts anew with each sandbox', () => {
  const used = new UseHistory();
  for (const [second, memory, cpu] of [[0, 100, 1], [5, 120, 3.5], [5, 120, 3.5], [4, 1, 9], [10, 110, 3.5]]) used.add([look(second, memory, cpu)]);
  assert.deepEqual(used.of('s').map((p) => [p.memory, p.cpu]), [[100, null], [120, 0.5], [110, 0]]);
  used.add([look(15, 50, 0.2, 'b')]);
  assert.deepEqual(used.of('s').map((p) => [p.memory, p.cpu]), [[50, null]]);
  used.add([{ session_id: 's', sandbox_id: 'b', resources: {} }, { session_id: 't' }]);
  assert.equal(used.of('s').length, 1);
  assert.deepEqual(used.of('t'), []);
});

test('it is bounded in length and in sessions', () => {
  const used = new UseHistory();
  for (let i = 0; i < 300; i++) used.add([look(i * 5, i, i)]);
  assert.equal(used.of('s').length, 240);
  assert.equal(used.of('s')[0].memory, 60);
  used.add([look(300 * 5 + 1800, 1, 1, 'x', 'other')]);
  assert.deepEqual(used.of('s'), []);
});

test('a line fills its width, and its highest value stands below the edge', () => {
  assert.equal(linePath([[0, 0], [10, 50], [20, 100]], 100, 200, 50), 'M0.0 50.0 L100.0 25.0 L200.0 0.0');
  assert.equal(linePath([[0, 0], [1, 0]], 0, 10, 10), 'M0.0 10.0 L10.0 10.0');
  assert.equal(linePath([[5, 1]], 1, 10, 10), '');
  assert.equal(linePath([], 1, 10, 10), '');
});
