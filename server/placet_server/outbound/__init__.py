"""Reaching out to what operators allow: which hosts (`address`), names looked up (`lookup`), one bounded HTTP request
(`http`), and who is told of what (`target_file`)."""
