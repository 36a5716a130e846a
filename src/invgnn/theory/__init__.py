"""The paper's statements as functions, corrected where they are wrong, each aware of what it assumes."""
