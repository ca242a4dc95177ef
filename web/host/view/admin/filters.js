/** Which sessions are asked for: the gateway filters, so that those behind the first page are found too. */
import { button, h } from '../../dom.js';
import { endWordsOfOther } from '../../model/words.js';

const STATES = ['new', 'starting', 'active', 'draining', 'quarantined', 'dormant'];
const STATE_WORDS = { new: 'not started', starting: 'starting', active: 'ready or running', draining: 'saving files', quarantined: 'waiting to save files', dormant: 'asleep' };
const REASONS = ['idle_timeout', 'max_lifetime', 'user', 'admin', 'out_of_memory', 'crash', 'host_lost', 'policy', 'protocol_violation', 'upgrade', 'retention'];
const HOUR_MS = 3_600_000;
/** @type {[number, string][]} */
const SINCE = [[0, 'any time'], [1, 'the last hour'], [24, 'the last day'], [168, 'the last week'], [720, 'the last 30 days']];

/** @param {import('../../app.js').App} app @param {() => void} changed @param {() => void} narrowed what is typed needs no new answer */
export function sessionFilters(app, changed, narrowed) {
  const search = h('input', { type: 'search', id: 'admin-filter', placeholder: 'owner, tenant, name, profile, state, reason', on: { input: narrowed } });
  const ended = h('input', { type: 'checkbox', id: 'admin-ended', on: { change: changed } });
  const owner = h('input', { type: 'search', id: 'admin-owner', placeholder: 'exact name', on: { change: changed } });
  const tenant = h('input', { type: 'search', id: 'admin-tenant', placeholder: 'exact name', on: { change: changed } });
  const state = choice('admin-state', 'any', STATES.map((s) => [s, STATE_WORDS[/** @type {keyof typeof STATE_WORDS} */ (s)]]), changed);
  const reason = choice('admin-reason', 'any', REASONS.map((r) => [r, endWordsOfOther(r)]), changed);
  const since = h('select', { id: 'admin-since', on: { change: changed } }, SINCE.map(([hours, title]) => h('option', { value: String(hours) }, title)));
  const platform = app.me.roles.includes('admin');
  /** @param {string} title @param {HTMLElement} input */
  const field = (title, input) => h('div', { class: 'field' }, h('label', { htmlFor: input.id }, title), input);
  const clear = button('Clear', () => {
    for (const input of [search, owner, tenant, state, reason]) input.value = '';
    since.value = '0';
    ended.checked = false;
    changed();
  }, { class: 'quiet' });
  return {
    element: h('div', { class: 'admin-filters', role: 'search', 'aria-label': 'Sessions' },
      field('Filter', search), field('Owner is', owner), platform && field('Tenant is', tenant), field('State', state), field('Last end', reason), field('Active in', since),
      h('div', { class: 'filter-end' }, h('label', { class: 'check' }, ended, ' Ended ones too'), clear)),
    /** @returns {Record<string, string>} */
    query() {
      /** @type {Record<string, string>} */
      const query = {};
      if (owner.value.trim()) query['user'] = owner.value.trim();
      if (tenant.value.trim()) query['tenant'] = tenant.value.trim();
      if (state.value) query['state'] = state.value;
      else if (!ended.checked) query['state'] = STATES.join(',');
      if (reason.value) query['reason'] = reason.value;
      if (since.value !== '0') query['since'] = new Date(app.now - Number(since.value) * HOUR_MS).toISOString();
      return query;
    },
    /** @param {import('../../types.js').Session} s */
    matches(s) {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      const text = [s.user, s.tenant, s.name, s.session_id, s.profile, s.state, s.reason].join(' ').toLowerCase();
      return words.every((w) => text.includes(w));
    },
  };
}

/** @param {string} id @param {string} any @param {[string, string][]} options @param {() => void} changed */
function choice(id, any, options, changed) {
  return h('select', { id, on: { change: changed } }, h('option', { value: '' }, any), options.map(([value, title]) => h('option', { value }, title)));
}
