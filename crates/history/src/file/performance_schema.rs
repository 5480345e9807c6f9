//! Views with the names and columns of MySQL's Performance Schema ("Memory Summary Tables", MySQL 8.4 Reference Manual,
//! 29.12.20.10) and of its `sys` schema. `docs/recording.md` describes the differences.

/// Views with the changes of blocks by interval, thread, user, host and event. `EVENT_NAME` is `memory/OBJECT/TAG`.
/// The object contains the innermost call outside of allocators and language libraries.
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
        CASE WHEN topic = 'tag_name' OR value BETWEEN 0 AND 4294967295 THEN CAST(value AS TEXT)
            ELSE printf('0x%x', value) END AS name
    FROM fact WHERE topic IN ('tag_name', 'tag_number');
CREATE VIEW memory_change AS
    SELECT change.interval,
        coalesce(total.thread, image.pid) AS THREAD_ID,
        coalesce(image.user, CAST(image.uid AS TEXT)) AS USER,
        cgroup.path AS HOST,
        'memory/' || coalesce(replace(object.path, rtrim(object.path, replace(object.path, '/', '')), ''), 'unknown')
            || '/' || coalesce(tag.name, 'tag ' || nullif(total.tag, 0), '[no tag]') AS EVENT_NAME,
        alloc_count, alloc_bytes, live_count, live_bytes
    FROM change
        JOIN total ON total.id = change.total
        JOIN event_class ON event_class.id = total.class AND event_class.name = 'heap'
        JOIN image ON image.id = total.image
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

/// Names of the summary views, and their key columns.
const SUMMARIES: [(&str, &str); 5] = [
    ("memory_summary_by_thread_by_event_name", "THREAD_ID, EVENT_NAME"),
    ("memory_summary_by_account_by_event_name", "USER, HOST, EVENT_NAME"),
    ("memory_summary_by_user_by_event_name", "USER, EVENT_NAME"),
    ("memory_summary_by_host_by_event_name", "HOST, EVENT_NAME"),
    ("memory_summary_global_by_event_name", "EVENT_NAME"),
];

/// Returns the statements that create the views.
pub(super) fn views() -> String {
    let summaries: String = SUMMARIES.iter().map(|(name, key)| summary(name, key)).collect();
    [MEMORY_CHANGE, &summaries, SYS].concat()
}

/// Returns the statement that creates a summary view. Memory that a process held at its end counts as freed.
/// Accounts are empty at the start of the trace, so low-water marks are 0. A high-water mark is the maximum over
/// the ends of intervals.
fn summary(name: &str, key: &str) -> String {
    format!(
        "CREATE VIEW {name} AS
            SELECT {key},
                sum(allocs) AS COUNT_ALLOC, sum(allocs - lives) AS COUNT_FREE,
                sum(alloc) AS SUM_NUMBER_OF_BYTES_ALLOC, sum(alloc - live) AS SUM_NUMBER_OF_BYTES_FREE,
                0 AS LOW_COUNT_USED, sum(lives) AS CURRENT_COUNT_USED, max(0, max(counts)) AS HIGH_COUNT_USED,
                0 AS LOW_NUMBER_OF_BYTES_USED, sum(live) AS CURRENT_NUMBER_OF_BYTES_USED,
                max(0, max(bytes)) AS HIGH_NUMBER_OF_BYTES_USED
            FROM (SELECT {key}, sum(alloc_count) AS allocs, sum(alloc_bytes) AS alloc, sum(live_count) AS lives,
                    sum(live_bytes) AS live,
                    sum(sum(live_count)) OVER (PARTITION BY {key} ORDER BY interval) AS counts,
                    sum(sum(live_bytes)) OVER (PARTITION BY {key} ORDER BY interval) AS bytes
                FROM memory_change GROUP BY {key}, interval)
            GROUP BY {key};\n"
    )
}
