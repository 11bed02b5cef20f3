"""From a question to an answer: predict, compare, explain."""
