-- The requests of all nodes. `sample` is absent, and so 1, where every request is written.
CREATE TABLE IF NOT EXISTS levada_access
(
    timestamp DateTime64(3, 'UTC'),
    node LowCardinality(String),
    remote_addr String,
    request_method LowCardinality(String),
    scheme LowCardinality(String),
    host LowCardinality(String),
    request_uri String,
    server_protocol LowCardinality(String),
    status UInt16,
    body_bytes_sent UInt64,
    request_time Float64,
    http_referer String,
    http_user_agent String,
    upstream_addr LowCardinality(String),
    upstream_cache_status LowCardinality(String),
    policy LowCardinality(String),
    decision LowCardinality(String),
    candidates UInt32,
    complete Bool,
    request_id String,
    error LowCardinality(String),
    pieces Nullable(UInt64),
    piece_retries Nullable(UInt64),
    piece_hedges Nullable(UInt64),
    window_stalls Nullable(UInt64),
    sample Float64 DEFAULT 1
)
ENGINE = MergeTree
PARTITION BY toDate(timestamp)
ORDER BY (host, timestamp)
TTL toDateTime(timestamp) + INTERVAL 30 DAY;
