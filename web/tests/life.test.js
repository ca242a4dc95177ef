/** A session's life as an admin reads it, and the words for it. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { actorOf, detailText, lifeOf } from '../host/model/life.js';
import { actWords, endWords, endWordsOfOther } from '../host/model/words.js';

const at = (minute) => `2026-01-31T10:${String(minute).padStart(2, '0')}:00.000000Z`;

test('sandboxes, notices and acts stand in one order, newest first', () => {
  const life = lifeOf({
    history: [{ sandbox_id: 'abc', state: 'gone', claimed_at: at(1), ended_at: at(9), reason: 'user' },
      { sandbox_id: 'def', state: 'claimed', claimed_at: at(12), ended_at: null, reason: '' }],
    notices: [{ notice_id: '1', kind: 'recycled', generation: 1, at: at(9), text: 'The sandbox ended because you ended it.' },
      { notice_id: '2', kind: 'extended', generation: 1, at: at(5), text: 'Extended.' }],
    audit: [{ at: at(4), tag: 'admin:session:extend', tenant: 't1', user: 'alice', session_id: 's', detail: { by: 'boss', text: 'due', seconds: 60 } }],
  });
  assert.deepEqual(life.map((m) => m.title), ['A sandbox began', 'The sandbox ended', 'Its maximum was extended', 'boss extended its maximum lifetime', 'A sandbox began']);
  assert.equal(life[1].text, 'its owner ended it');
  assert.equal(life[3].text, '“due”');
});

test('who did it, and what else is known', () => {
  const entry = { at: at(1), tag: 'retention:artifact:delete', tenant: 't1', user: 'alice', session_id: '', detail: { count: 3, ids: ['a'], why: ['old'], text: '' } };
  assert.equal(actorOf(entry), 'alice');
  assert.equal(actorOf({ ...entry, user: '' }), 'the gateway');
  assert.equal(detailText(entry), 'count: 3 · ids: ["a"] · why: ["old"]');
  assert.equal(detailText({ ...entry, detail: { by: 'boss', by_tenant: 't0', text: 'left' } }), 'by tenant: t0 · “left”');
});

test('words for whoever is not the owner', () => {
  assert.equal(endWordsOfOther('user'), 'its owner ended it');
  assert.equal(endWordsOfOther('crash'), endWords('crash'));
  assert.equal(actWords('new:tag:here'), 'new:tag:here');
  assert.deepEqual(['recycle', 'restart', 'end'].map((act) => actWords(`user:session:${act}`)), ['ended the sandbox', 'restarted the kernel', 'ended the session']);
});
