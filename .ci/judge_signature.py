"""The scheme's library for Python judges a notification: a secret, the three headers, and the body on stdin."""
import sys

from standardwebhooks import Webhook

secret, message_id, timestamp, signature = sys.argv[1:]
headers = {"webhook-id": message_id, "webhook-timestamp": timestamp, "webhook-signature": signature}
Webhook(secret).verify(sys.stdin.buffer.read(), headers)
print("believed")
