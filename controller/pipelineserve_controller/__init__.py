"""The sidecar: watches one engine's scheduler, decides, and sends policies within guards."""
