/**
 * The gateway's time, whatever the browser's clock says. Pure: the caller passes the monotonic time in.
 *
 * An answer's `server_time` was true a moment before it arrived, so (server_time - local time) is at most the real offset:
 * the largest value seen is the best, and an old session event that is replayed cannot turn the clock back. Local time is
 * `performance.now()`, which does not jump when the computer's clock is set.
 */
export class ServerClock {
  #offset = -Infinity;

  /** @param {string} serverTime @param {number} local milliseconds */
  sample(serverTime, local) {
    const server = Date.parse(serverTime);
    if (Number.isFinite(server)) this.#offset = Math.max(this.#offset, server - local);
  }

  get known() {
    return this.#offset !== -Infinity;
  }

  /** @param {number} local @returns {number} milliseconds since the epoch, by the gateway's clock */
  now(local) {
    return this.known ? local + this.#offset : NaN;
  }
}

/** @param {string | null | undefined} time @param {number} now */
export function until(time, now) {
  if (!time) return null;
  const left = Date.parse(time) - now;
  return Number.isFinite(left) ? left : null;
}

/** A countdown's text: seconds matter below an hour only. @param {number} ms */
export function countdownText(ms) {
  const s = Math.max(0, Math.ceil(ms / 1000));
  const h = Math.floor(s / 3600);
  const m = Math.floor((s % 3600) / 60);
  if (h) return `${h} h ${String(m).padStart(2, '0')} min`;
  return `${m}:${String(s % 60).padStart(2, '0')}`;
}

/** A duration that has passed. @param {number} ms */
export function durationText(ms) {
  if (ms < 0) ms = 0;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 60_000) return `${Math.floor(ms / 1000)} s`;
  return countdownText(Math.floor(ms / 1000) * 1000) + (ms < 3_600_000 ? ' min' : '');
}

/** A duration that goes on: whole seconds, so that it ticks evenly. @param {number} ms */
export function elapsedText(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  return s < 60 ? `${s} s` : durationText(s * 1000);
}

/** How long ago, in words. @param {string | null | undefined} time @param {number} now */
export function agoText(time, now) {
  if (!time) return '';
  const s = Math.max(0, Math.round((now - Date.parse(time)) / 1000));
  if (!Number.isFinite(s)) return '';
  if (s < 5) return 'just now';
  if (s < 60) return `${s} s ago`;
  if (s < 3600) return `${Math.floor(s / 60)} min ago`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ago`;
  return `${Math.floor(s / 86400)} d ago`;
}

/**
 * Both countdowns of a session.
 * @param {import('../types.js').Session} session @param {number} now
 */
export function countdowns(session, now) {
  const live = session.state === 'active' || session.state === 'starting';
  const idleLeft = live && !session.idle_paused ? until(session.idle_deadline, now) : null;
  const maxLeft = live ? until(session.max_deadline, now) : null;
  return {
    idle: {
      left: idleLeft,
      text: live && session.idle_paused ? 'running, idle paused' : idleLeft === null ? 'not running' : countdownText(idleLeft),
      fraction: fraction(idleLeft, session.idle_timeout_s),
    },
    max: {
      left: maxLeft,
      text: maxLeft === null ? 'not running' : countdownText(maxLeft),
      fraction: fraction(maxLeft, session.max_lifetime_s + (session.extended_s ?? 0)),
    },
  };
}

/** @param {number | null} left @param {number} total seconds */
function fraction(left, total) {
  if (left === null || !(total > 0)) return null;
  return Math.min(1, Math.max(0, left / (total * 1000)));
}
