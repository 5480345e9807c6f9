//! Views with the names and columns of MySQL's Performance Schema ("Memory Summary Tables", MySQL 8.4 Reference Manual,
//! 29.12.20.10) and of its `sys` schema. `docs/recording.md` describes the differences.

/// Views with the changes of blocks by interval, thread, user, host and event. `EVENT_NAME` is `memory/OBJECT/TAG`. If the tag
/// begins with `memory/`, it is the name of a class, and `EVENT_NAME` is the tag itself. `OBJECT` has the innermost call outside
/// of allocators and language libraries; without stacks, `OBJECT` is the executable.
const MEMORY_CHANGE: &str = "
CREATE VIEW calling_object AS
    WITH RECURSIVE climb (path, at) AS (
        SELECT DISTINCT path, path FROM total
        UNION ALL
        SELECT climb.path, path.callers FROM climb JOIN path ON path.id = climb.at
            WHERE EXISTS (SELECT 1 FROM symbol WHERE symbol.object = path.object
                AND symbol.offset = coalesce(path.offset, -1) AND symbol.library))
    SELECT climb.path, path.object
    FROM climb JOIN path ON path.id = climb.at
    WHERE NOT EXISTS (SELECT 1 FROM symbol WHERE symbol.object = path.object
        AND symbol.offset = coalesce(path.offset, -1) AND symbol.library);
CREATE VIEW tag AS
    SELECT CAST(item AS INTEGER) AS id,
        CASE WHEN topic = 'tag_name' THEN CAST(value AS TEXT)
            WHEN tag_format = 'dec' OR tag_format IS NULL AND value BETWEEN 0 AND 4294967295 THEN printf('%u', value)
            ELSE printf('0x%x', value) END AS name
    FROM fact, (SELECT max(value) AS tag_format FROM fact WHERE topic = 'run' AND item = 'tag_format')
    WHERE topic IN ('tag_name', 'tag_number');
CREATE VIEW memory_change AS
    SELECT change.interval,
        coalesce(total.thread, image.pid) AS THREAD_ID,
        coalesce(image.user, CAST(image.uid AS TEXT)) AS USER,
        cgroup.path AS HOST,
        coalesce(tag.name, 'tag ' || nullif(total.tag, 0), '[no tag]') AS TAG,
        CASE WHEN substr(tag.name, 1, 7) = 'memory/' THEN tag.name
            ELSE 'memory/' || coalesce(replace(object.path, rtrim(object.path, replace(object.path, '/', '')), ''),
                CASE WHEN stack_end.name = 'not_taken' THEN
                    coalesce(replace(image.exe, rtrim(image.exe, replace(image.exe, '/', '')), ''), image.comm) END,
                'unknown') || '/' || coalesce(tag.name, 'tag ' || nullif(total.tag, 0), '[no tag]') END AS EVENT_NAME,
        alloc_count, alloc_bytes, live_count, live_bytes
    FROM change
        JOIN total ON total.id = change.total
        JOIN event_class ON event_class.id = total.class AND event_class.name = 'heap'
        JOIN image ON image.id = total.image
        JOIN stack_end ON stack_end.id = total.\"end\"
        LEFT JOIN cgroup ON cgroup.id = image.cgroup
        LEFT JOIN path ON path.id = total.path
        LEFT JOIN calling_object ON calling_object.path = total.path
        LEFT JOIN object ON object.id = coalesce(calling_object.object, path.object)
        LEFT JOIN tag ON tag.id = total.tag;
CREATE VIEW threads AS
    SELECT tid AS THREAD_ID, thread.name AS NAME, image.pid AS PROCESSLIST_ID,
        coalesce(image.user, CAST(image.uid AS TEXT)) AS PROCESSLIST_USER, cgroup.path AS PROCESSLIST_HOST,
        tid AS THREAD_OS_ID
    FROM thread
        JOIN image ON image.id = thread.image
        LEFT JOIN cgroup ON cgroup.id = image.cgroup
    WHERE thread.image = (SELECT max(other.image) FROM thread AS other WHERE other.tid = thread.tid);
";

/// Views of the recorded accounts. `water_mark_start`: the last interval before the water marks start. `account_water_marks`:
/// marks that the account of a thread, user, cgroup or tag (`KIND`) has certainly reached.
const WATER_MARKS: &str = "
CREATE VIEW water_mark_start AS
    SELECT coalesce(max(interval), 0) AS after_interval FROM mark WHERE text = 'reset' OR text LIKE 'reset#%';
CREATE VIEW account_water_marks AS
    WITH run (keys) AS (SELECT max(value) FROM fact WHERE topic = 'run' AND item = 'accounts_by'),
    earlier AS (
        SELECT account, live_count, live_bytes, max(interval) FROM account_interval
            WHERE interval <= (SELECT after_interval FROM water_mark_start) GROUP BY account),
    marks (account, low_count, high_count, low_bytes, high_bytes) AS (
        SELECT account, low_count_at_most, high_count_at_least, low_bytes_at_most, high_bytes_at_least
            FROM account_interval WHERE interval > (SELECT after_interval FROM water_mark_start)
        UNION ALL SELECT account, live_count, live_count, live_bytes, live_bytes FROM earlier
        UNION ALL SELECT id, 0, 0, 0, 0 FROM account WHERE id NOT IN (SELECT account FROM earlier)),
    named AS (
        SELECT replace(replace(keys, ',tag', ''), 'tag,', '') AS KIND, thread,
            CASE WHEN keys LIKE 'tag,%' THEN name_2 WHEN keys <> 'tag' THEN name END AS NAME,
            CASE WHEN keys = 'tag' OR keys LIKE 'tag,%' THEN name WHEN keys LIKE '%,tag' THEN name_2 END AS TAG,
            low_count, high_count, low_bytes, high_bytes
        FROM marks JOIN account ON account.id = marks.account JOIN run WHERE account.id <> 0)
    SELECT KIND, CASE WHEN KIND = 'thread' THEN thread ELSE NAME END AS NAME, TAG,
        min(low_count) AS LOW_COUNT_USED, max(high_count) AS HIGH_COUNT_USED,
        min(low_bytes) AS LOW_NUMBER_OF_BYTES_USED, max(high_bytes) AS HIGH_NUMBER_OF_BYTES_USED
    FROM named GROUP BY 1, 2, 3;
";

/// Views of the schema `sys`. Bytes are plain numbers, as in the views of `sys` with the prefix `x$`.
const SYS: &str = "
CREATE VIEW sys_memory_by_thread_by_current_bytes AS
    SELECT THREAD_ID AS thread_id,
        coalesce((SELECT NAME FROM threads WHERE threads.THREAD_ID = summary.THREAD_ID), '') AS user,
        sum(CURRENT_COUNT_USED) AS current_count_used,
        sum(CURRENT_NUMBER_OF_BYTES_USED) AS current_allocated,
        coalesce(sum(CURRENT_NUMBER_OF_BYTES_USED) * 1.0 / nullif(sum(CURRENT_COUNT_USED), 0), 0) AS current_avg_alloc,
        max(CURRENT_NUMBER_OF_BYTES_USED) AS current_max_alloc,
        sum(SUM_NUMBER_OF_BYTES_ALLOC) AS total_allocated
    FROM memory_summary_by_thread_by_event_name AS summary
    GROUP BY THREAD_ID ORDER BY current_allocated DESC;
CREATE VIEW sys_memory_global_by_current_bytes AS
    SELECT EVENT_NAME AS event_name, CURRENT_COUNT_USED AS current_count,
        CURRENT_NUMBER_OF_BYTES_USED AS current_alloc,
        coalesce(CURRENT_NUMBER_OF_BYTES_USED * 1.0 / nullif(CURRENT_COUNT_USED, 0), 0) AS current_avg_alloc,
        HIGH_COUNT_USED AS high_count, HIGH_NUMBER_OF_BYTES_USED AS high_alloc,
        coalesce(HIGH_NUMBER_OF_BYTES_USED * 1.0 / nullif(HIGH_COUNT_USED, 0), 0) AS high_avg_alloc
    FROM memory_summary_global_by_event_name ORDER BY current_alloc DESC;
";

/// A summary view.
struct Summary {
    name: &'static str,
    /// Key columns before `EVENT_NAME`.
    keys: &'static [&'static str],
    /// Kind of the accounts with the water marks of the rows: the kind of the only key or, without keys, of the event.
    accounts: Option<&'static str>,
}

const SUMMARIES: [Summary; 5] = [
    Summary { name: "memory_summary_by_thread_by_event_name", keys: &["THREAD_ID"], accounts: Some("thread") },
    Summary { name: "memory_summary_by_account_by_event_name", keys: &["USER", "HOST"], accounts: None },
    Summary { name: "memory_summary_by_user_by_event_name", keys: &["USER"], accounts: Some("user") },
    Summary { name: "memory_summary_by_host_by_event_name", keys: &["HOST"], accounts: Some("cgroup") },
    Summary { name: "memory_summary_global_by_event_name", keys: &[], accounts: Some("tag") },
];

/// Returns the statements that create the views.
pub(super) fn views() -> String {
    let summaries: String = SUMMARIES.iter().map(summary).collect();
    [MEMORY_CHANGE, WATER_MARKS, &summaries, SYS].concat()
}

/// Returns the statement that creates a summary view. Memory that a process held at its end counts as freed.
///
/// The water marks come from the account with the same thread, user, host or event, if it was recorded and has a single event:
/// an account by tag has the events of all objects with this tag, and any other account has all events of its key. Without such
/// an account, low-water marks are 0, because all accounts are empty at the start of the trace, and high-water marks are the
/// maximum over the ends of intervals, including the last end before a reset.
fn summary(Summary { name, keys, accounts }: &Summary) -> String {
    let key = keys.iter().map(|key| format!("{key}, ")).collect::<String>() + "EVENT_NAME";
    let account = keys.first().copied().filter(|_| accounts.is_some()).unwrap_or("NULL");
    let kind = accounts.map_or_else(|| "NULL".into(), |kind| format!("'{kind}'"));
    format!(
        "CREATE VIEW {name} AS
            WITH changes AS (
                SELECT {key}, TAG, interval, sum(alloc_count) AS allocs, sum(alloc_bytes) AS alloc,
                    sum(live_count) AS lives, sum(live_bytes) AS live,
                    sum(sum(live_count)) OVER (PARTITION BY {key} ORDER BY interval) AS counts,
                    sum(sum(live_bytes)) OVER (PARTITION BY {key} ORDER BY interval) AS bytes
                FROM memory_change GROUP BY {key}, TAG, interval),
            sums AS (
                SELECT {key}, TAG, {account} AS account, sum(allocs) AS allocs, sum(alloc) AS alloc, sum(lives) AS lives,
                    sum(live) AS live,
                    max(sum(lives), coalesce(sum(lives) FILTER (WHERE interval <= after_interval), 0),
                        coalesce(max(counts) FILTER (WHERE interval >= after_interval), 0)) AS counts,
                    max(sum(live), coalesce(sum(live) FILTER (WHERE interval <= after_interval), 0),
                        coalesce(max(bytes) FILTER (WHERE interval >= after_interval), 0)) AS bytes,
                    count(*) OVER (PARTITION BY {account}, TAG) AS events_of_tag,
                    count(*) OVER (PARTITION BY {account}) AS events
                FROM changes JOIN water_mark_start GROUP BY {key}, TAG)
            SELECT {key}, allocs AS COUNT_ALLOC, allocs - lives AS COUNT_FREE, alloc AS SUM_NUMBER_OF_BYTES_ALLOC,
                alloc - live AS SUM_NUMBER_OF_BYTES_FREE,
                coalesce(marks.LOW_COUNT_USED, 0) AS LOW_COUNT_USED, lives AS CURRENT_COUNT_USED,
                max(0, counts, coalesce(marks.HIGH_COUNT_USED, 0)) AS HIGH_COUNT_USED,
                coalesce(marks.LOW_NUMBER_OF_BYTES_USED, 0) AS LOW_NUMBER_OF_BYTES_USED,
                live AS CURRENT_NUMBER_OF_BYTES_USED,
                max(0, bytes, coalesce(marks.HIGH_NUMBER_OF_BYTES_USED, 0)) AS HIGH_NUMBER_OF_BYTES_USED
            FROM sums LEFT JOIN account_water_marks AS marks ON marks.KIND = {kind} AND marks.NAME IS sums.account
                AND (marks.TAG = sums.TAG AND events_of_tag = 1 OR marks.TAG IS NULL AND events = 1);\n"
    )
}
