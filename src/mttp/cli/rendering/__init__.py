"""Reports of commands, as text for people and as JSON documents."""
