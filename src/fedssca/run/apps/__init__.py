"""Parts for apps of other libraries: `flower`."""
