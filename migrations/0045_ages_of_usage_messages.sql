-- Old marks of messages are found by a B-tree, as old callbacks are (0041).
CREATE INDEX usage_messages_by_time ON usage_messages (created_at);
DROP INDEX usage_messages_by_age;
ALTER INDEX usage_messages_by_time RENAME TO usage_messages_by_age;
