import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cpuMs } from './cpu.js';
import { EventParser } from '../host/model/sse.js';

const TEXT = ': hello\n\nevent: session\ndata: {"a":1}\n\nid: 7\nevent: message\ndata: one\ndata: two\n\nid: 9\r\ndata: crlf\r\n\r\ndata\n\n';
const EVENTS = [
  { id: null, event: 'session', data: '{"a":1}' },
  { id: 7, event: 'message', data: 'one\ntwo' },
  { id: 9, event: 'message', data: 'crlf' },
  { id: null, event: 'message', data: '' },
];

test('whole', () => assert.deepEqual([...new EventParser().feed(TEXT)], EVENTS));

test('cut at every place', () => {
  for (let cut = 1; cut < TEXT.length; cut++) {
    const parser = new EventParser();
    assert.deepEqual([...parser.feed(TEXT.slice(0, cut)), ...parser.feed(TEXT.slice(cut))], EVENTS, `cut at ${cut}`);
  }
});

test('one character at a time', () => {
  const parser = new EventParser();
  assert.deepEqual([...TEXT].flatMap((c) => [...parser.feed(c)]), EVENTS);
});

test('an id that is no number is none', () => {
  assert.equal([...new EventParser().feed('id: x\ndata: y\n\n')][0].id, null);
});

test('a 20 MB event in small chunks takes linear time', () => {
  const started = cpuMs();
  const parser = new EventParser();
  const events = [...parser.feed('data: ')];
  for (let i = 0; i < 5000; i++) events.push(...parser.feed('x'.repeat(4000)));
  events.push(...parser.feed('\n\n'));
  assert.equal(events[0].data.length, 20_000_000);
  assert.ok(cpuMs() - started < 3000);
});
