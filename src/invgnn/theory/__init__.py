"""The paper's statements as functions, corrected where needed. Every result lists its assumptions."""
