-- What is asked most, of the table of schema.sql. None takes an argument.

-- How did each run do?
SELECT run_id, env, count() AS episodes, avg(return) AS mean_return, quantile(0.5)(length) AS median_length,
       countIf(outcome = 'success') / count() AS success
FROM mttp.spans WHERE is_episode GROUP BY run_id, env ORDER BY run_id;

-- Does the return rise with the version of the policy?
SELECT run_id, policy_version, count() AS episodes, avg(return) AS mean_return
FROM mttp.spans WHERE is_episode AND policy_version != '' GROUP BY run_id, policy_version
ORDER BY run_id, toInt64OrZero(policy_version);

-- Did a new version of the reward change what is paid?
SELECT spec, spec_version, count() AS scorings, avg(reward) AS mean, stddevSamp(reward) AS deviation
FROM mttp.spans WHERE startsWith(SpanName, 'reward') GROUP BY spec, spec_version ORDER BY spec, spec_version;

-- Which components are paid, and do two of them disagree?
SELECT spec, replaceOne(key, 'mttp.reward.score.', '') AS component, avg(toFloat64OrNull(value)) AS mean, count() AS scorings
FROM mttp.spans ARRAY JOIN mapKeys(SpanAttributes) AS key, mapValues(SpanAttributes) AS value
WHERE startsWith(SpanName, 'reward') AND startsWith(key, 'mttp.reward.score.')
GROUP BY spec, component ORDER BY spec, component;

-- Which groups taught nothing, all members paid alike?
SELECT group_id, count() AS members, avg(return) AS mean_return
FROM mttp.spans WHERE is_episode AND group_id != ''
GROUP BY group_id HAVING members > 1 AND stddevPop(return) = 0 ORDER BY group_id;

-- Which tasks fail most?
SELECT task, count() AS attempts, countIf(outcome = 'failure') AS failures
FROM mttp.spans WHERE is_episode AND task != '' GROUP BY task ORDER BY failures DESC, task LIMIT 20;

-- Which rewards are no number, and where?
SELECT TraceId, SpanName, spec, reward_status, StatusMessage
FROM mttp.spans WHERE reward_status IN ('error', 'missing') ORDER BY Timestamp DESC LIMIT 100;

-- How far did each update move the policy?
SELECT run_id, update_index, kl FROM mttp.spans WHERE SpanName = 'update' ORDER BY run_id, update_index;

-- How many tokens are sampled a minute?
SELECT toStartOfMinute(Timestamp) AS minute, sum(tokens) AS sampled
FROM mttp.spans WHERE tokens > 0 GROUP BY minute ORDER BY minute;

-- Of which episodes are spans missing? Parts that other processes added say a number of their own, and a row of
-- steps in columns is as many spans as it has steps.
SELECT TraceId, SpanAttributes['mttp.segment.id'] AS segment,
       max(toInt64OrZero(SpanAttributes[if(segment = '', 'mttp.episode.span_count', 'mttp.segment.span_count')])) AS stated,
       sum(greatest(toInt64OrZero(SpanAttributes['mttp.steps.count']), 1)) AS found
FROM mttp.spans WHERE run_id != '' AND episode_id != ''
GROUP BY TraceId, segment HAVING found < stated ORDER BY TraceId, segment;
