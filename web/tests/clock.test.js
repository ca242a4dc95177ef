import assert from 'node:assert/strict';
import { test } from 'node:test';
import { agoText, countdowns, countdownText, durationText, ServerClock, until } from '../host/model/clock.js';

const T0 = '2026-01-31T10:00:00.000000Z';
const at = (seconds) => new Date(Date.parse(T0) + seconds * 1000).toISOString();

test('the gateway’s time does not depend on the browser’s', () => {
  const clock = new ServerClock();
  assert.ok(Number.isNaN(clock.now(5)));
  clock.sample(T0, 1000);
  assert.equal(clock.now(6000), Date.parse(at(5)));
});

test('a slow or replayed answer never turns the clock back', () => {
  const clock = new ServerClock();
  clock.sample(T0, 1000);
  clock.sample(at(1), 9000);
  assert.equal(clock.now(1000), Date.parse(T0));
  clock.sample('nonsense', 0);
  assert.equal(clock.now(1000), Date.parse(T0));
});

test('after a sleep in which local time stood still, a new answer puts it right', () => {
  const clock = new ServerClock();
  clock.sample(T0, 1000);
  clock.sample(at(3600), 2000);
  assert.equal(clock.now(2000), Date.parse(at(3600)));
});

test('texts', () => {
  assert.equal(countdownText(1_200_000), '20:00');
  assert.equal(countdownText(59_001), '1:00');
  assert.equal(countdownText(900), '0:01');
  assert.equal(countdownText(-5), '0:00');
  assert.equal(countdownText(8 * 3_600_000), '8 h 00 min');
  assert.equal(durationText(12), '12 ms');
  assert.equal(durationText(1500), '1.5 s');
  assert.equal(durationText(59_900), '59 s');
  assert.equal(durationText(61_000), '1:01 min');
  assert.equal(agoText(T0, Date.parse(at(3))), 'just now');
  assert.equal(agoText(T0, Date.parse(at(7200))), '2 h ago');
  assert.equal(agoText(null, 0), '');
  assert.equal(until(null, 0), null);
  assert.equal(until('', 0), null);
});

const session = (more) => ({
  state: 'active', idle_paused: false, idle_deadline: at(60), max_deadline: at(7200), idle_timeout_s: 120, max_lifetime_s: 28800, ...more,
});

test('both countdowns', () => {
  const now = Date.parse(T0);
  const both = countdowns(session({}), now);
  assert.equal(both.idle.text, '1:00');
  assert.equal(both.idle.fraction, 0.5);
  assert.equal(both.max.text, '2 h 00 min');
});

test('a busy kernel is not idle', () => {
  const { idle, max } = countdowns(session({ idle_paused: true }), Date.parse(T0));
  assert.equal(idle.text, 'running, idle paused');
  assert.equal(idle.left, null);
  assert.equal(max.text, '2 h 00 min');
});

test('without a sandbox nothing counts down', () => {
  for (const state of ['new', 'dormant', 'draining', 'ended']) {
    const { idle, max } = countdowns(session({ state, idle_deadline: null, max_deadline: null }), Date.parse(T0));
    assert.equal(idle.text, 'not running');
    assert.equal(max.fraction, null);
  }
});
