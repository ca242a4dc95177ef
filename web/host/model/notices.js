/**
 * What notices do to a timeline. A loss comes as several notices (recycled, variables_lost, files_lost; later restored); a person
 * sees one divider.
 *
 * @typedef {import('./timeline.js').Timeline} Timeline
 * @typedef {import('./timeline.js').Divider} Divider
 * @typedef {import('../types.js').Notice} Notice
 * @typedef {import('../types.js').FileRef} FileRef
 */

/** Kinds that say what happened; the others say what it cost. */
const HEADLINES = new Set(['recycled', 'kernel_died', 'kernel_restarted', 'ended']);
const ONE_EVENT_MS = 60_000;
const COSTS = new Set(['variables_lost', 'files_lost']);

/** @param {(string | FileRef)[] | undefined} files @returns {FileRef[]} */
export function fileRefs(files) {
  return (files ?? []).map((file) => (typeof file === 'string' ? { path: file } : file));
}

/** @param {Timeline} timeline @param {Notice} notice */
export function addNotice(timeline, notice) {
  if (timeline.noticeIds.has(notice.notice_id)) return;
  timeline.noticeIds.add(notice.notice_id);
  const { kind } = notice;
  if (notice.text) timeline.said.add(notice.text.trim());
  if (kind === 'idle_warning' || kind === 'max_warning') timeline.warnings.set(kind, notice);
  else if (HEADLINES.has(kind) || COSTS.has(kind)) lossInto(dividerFor(timeline, notice), notice, timeline);
  else if (kind === 'restored' && timeline.lastDivider()) lossInto(/** @type {Divider} */ (timeline.lastDivider()), notice, timeline);
  else if (kind === 'output_truncated' && timeline.runs.has(notice.execution_id ?? '')) {
    const run = /** @type {import('./timeline.js').Run} */ (timeline.runs.get(notice.execution_id ?? ''));
    run.notices = [...run.notices, notice];
    timeline.touched.add(run.key);
  } else timeline.add({ kind: 'note', key: 'note-' + notice.notice_id, notice });
}

/** @param {Timeline} timeline @param {Notice} notice @returns {Divider} */
function dividerFor(timeline, notice) {
  const last = timeline.lastDivider();
  const again = last !== null && HEADLINES.has(notice.kind) && HEADLINES.has(last.headline) && !goesOn(last, notice);
  if (last && !last.closed && !again) return last;
  // What a run's own start tells once more (names lost before it) is no second loss.
  if (last && COSTS.has(notice.kind) && last.closed && tells(last, notice)) return last;
  /** @type {Divider} */
  const divider = {
    kind: 'divider', key: 'divider-' + notice.notice_id, headline: notice.kind, at: notice.at, generation: notice.generation,
    reason: notice.reason ?? '', texts: [], lost: [], lostFiles: [], kept: [], restored: [], failed: [], said: [], closed: false,
  };
  timeline.add(divider);
  return divider;
}

/** Ending a session ends its sandbox first: two notices, one event. @param {Divider} divider @param {Notice} notice */
function goesOn(divider, notice) {
  return notice.kind === 'ended' && Math.abs(Date.parse(notice.at) - Date.parse(divider.at)) < ONE_EVENT_MS;
}

/** @param {Divider} divider @param {Notice} notice */
function tells(divider, notice) {
  return notice.generation === divider.generation && notice.reason === divider.reason;
}

/** @param {Divider} divider @param {Notice} notice @param {Timeline} timeline */
function lossInto(divider, notice, timeline) {
  if (HEADLINES.has(notice.kind) && (!HEADLINES.has(divider.headline) || notice.kind === 'ended')) {
    divider.headline = notice.kind;
    divider.reason = notice.reason || divider.reason;
  }
  divider.reason ||= notice.reason ?? '';
  divider.generation = Math.max(divider.generation, notice.generation ?? 0);
  if (notice.said && !divider.said.includes(notice.said)) divider.said.push(notice.said);
  if (notice.text && !divider.texts.includes(notice.text)) divider.texts.push(notice.text);
  if (notice.kind === 'files_lost') divider.lostFiles = merge(divider.lostFiles, fileRefs(notice.files));
  else if (notice.kind === 'restored') {
    divider.restored = merge(divider.restored, fileRefs(notice.files));
    divider.failed = merge(divider.failed, fileRefs(notice.failed));
  } else if (notice.variables) {
    const known = new Set(divider.lost.map((v) => v.name));
    divider.lost = [...divider.lost, ...notice.variables.filter((v) => !known.has(v.name))];
  }
  divider.kept = merge(divider.kept, fileRefs(notice.kept_files));
  timeline.touched.add(divider.key);
}

/** @param {FileRef[]} before @param {FileRef[]} more */
function merge(before, more) {
  const known = new Set(before.map((f) => f.path));
  return [...before, ...more.filter((f) => !known.has(f.path))];
}

/**
 * The warnings in force: what the session says, and what came as a notice and is still ahead. A warning whose deadline has moved
 * (somebody kept the session alive) is no longer one.
 * @param {import('../types.js').Session} session @param {Timeline} timeline @param {number} now
 * @returns {import('../types.js').Warning[]}
 */
export function activeWarnings(session, timeline, now) {
  if (session.state !== 'active' && session.state !== 'starting') return [];
  /** @type {Map<string, import('../types.js').Warning>} */
  const byKind = new Map();
  const fromNotices = [...timeline.warnings.values()].map((n) => /** @type {import('../types.js').Warning} */ ({
    kind: n.kind, at: n.at, deadline: n.deadline ?? null, reason: n.reason ?? '', variables: n.variables ?? [],
    undeclared_files: n.undeclared_files ?? [], kept_files: n.kept_files ?? [], actions: n.actions ?? [],
  }));
  for (const warning of [...fromNotices, ...(session.warnings ?? [])]) {
    const idle = warning.kind === 'idle_warning';
    if (idle && session.idle_paused) continue;
    const deadline = idle ? session.idle_deadline : session.max_deadline;
    if (!deadline || !warning.deadline) continue;
    if (Math.abs(Date.parse(deadline) - Date.parse(warning.deadline)) > 1000 || Date.parse(deadline) <= now) continue;
    byKind.set(warning.kind, warning);
  }
  return [...byKind.values()].sort((a, b) => Date.parse(a.deadline ?? '') - Date.parse(b.deadline ?? ''));
}
