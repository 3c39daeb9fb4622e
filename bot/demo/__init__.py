"""Everything on one machine: a Slack-compatible workspace, simulated engines and a job."""
