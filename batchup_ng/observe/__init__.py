"""What a user looks at: samples, summaries, traces."""
