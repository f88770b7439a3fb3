"""Results as pages: a page is a list of blocks, which terminal, Markdown and HTML render."""
