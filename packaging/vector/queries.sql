-- Requests, bytes and hit ratio in intervals of five minutes.
SELECT toStartOfFiveMinutes(timestamp) AS time,
       sum(1 / sample) AS requests,
       sum(body_bytes_sent / sample) AS bytes,
       sumIf(1 / sample, upstream_cache_status IN ('hit', 'revalidated'))
           / sumIf(1 / sample, upstream_cache_status NOT IN ('none', 'relayed', 'pieces')) AS hit_ratio
FROM levada_access GROUP BY time ORDER BY time;

-- The objects that cause most traffic.
SELECT host, request_uri, sum(1 / sample) AS requests, sum(body_bytes_sent / sample) AS bytes
FROM levada_access GROUP BY host, request_uri ORDER BY bytes DESC LIMIT 20;

-- Errors by site and path.
SELECT host, path(request_uri) AS path, status, sum(1 / sample) AS requests, any(error) AS example
FROM levada_access WHERE status >= 500 GROUP BY host, path, status ORDER BY requests DESC LIMIT 20;

-- Latency by the result of the cache.
SELECT upstream_cache_status,
       quantilesTDigestWeighted(0.5, 0.99, 0.999)(request_time, toUInt64(1000 / sample)) AS seconds
FROM levada_access GROUP BY upstream_cache_status;

-- Clients that stopped before the end.
SELECT remote_addr, count() AS cut FROM levada_access
WHERE NOT complete GROUP BY remote_addr ORDER BY cut DESC LIMIT 20;
