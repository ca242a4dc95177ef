/**
 * One session's life as an admin reads it: sandboxes, what its owner was told, what was done to it; newest first. Pure.
 *
 * @typedef {{at: string, kind: 'sandbox' | 'notice' | 'audit', title: string, text: string}} Moment
 */
import { actWords, endWordsOfOther, headlineWords } from './words.js';

/** Said by the sandbox's own end already. */
const SAID_BY_SANDBOX = new Set(['recycled']);

/** @param {import('../types.js').SessionDetail} session @returns {Moment[]} */
export function lifeOf(session) {
  /** @type {Moment[]} */
  const moments = [];
  for (const sandbox of session.history) {
    if (sandbox.claimed_at) moments.push({ at: sandbox.claimed_at, kind: 'sandbox', title: 'A sandbox began', text: sandbox.sandbox_id.slice(0, 12) });
    if (sandbox.ended_at) {
      moments.push({ at: sandbox.ended_at, kind: 'sandbox', title: 'The sandbox ended', text: sandbox.reason ? endWordsOfOther(sandbox.reason) : '' });
    }
  }
  for (const notice of session.notices) {
    if (SAID_BY_SANDBOX.has(notice.kind)) continue;
    moments.push({ at: notice.at, kind: 'notice', title: headlineWords(notice.kind), text: notice.text ? `Told: “${notice.text}”` : '' });
  }
  for (const entry of session.audit) moments.push({ at: entry.at, kind: 'audit', title: `${actorOf(entry)} ${actWords(entry.tag)}`, text: detailText(entry, ['text']) });
  return moments.sort((a, b) => (a.at < b.at ? 1 : a.at > b.at ? -1 : 0));
}

/** Who did it: an admin stands in the details, for the entry's user is whom it concerns. @param {import('../types.js').AuditEntry} entry */
export const actorOf = (entry) => String(entry.detail.by || entry.user || 'the gateway');

/** The details of an entry, some of them (all without `names`). @param {import('../types.js').AuditEntry} entry @param {string[]} [names] */
export function detailText(entry, names) {
  return Object.entries(entry.detail)
    .filter(([name, value]) => (names ? names.includes(name) : name !== 'by' && !(name === 'by_tenant' && value === entry.tenant)) && value !== null && value !== '')
    .map(([name, value]) => (name === 'text' ? `“${value}”` : names ? String(value) : `${name.replaceAll('_', ' ')}: ${typeof value === 'object' ? JSON.stringify(value) : value}`))
    .join(' · ');
}
