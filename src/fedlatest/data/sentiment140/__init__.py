"""The Sentiment140 data set: tweets with a sentiment, an account and a time."""
