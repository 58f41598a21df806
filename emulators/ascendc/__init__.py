"""Run Ascend C on the CPU: cores with queues of instructions, whose accesses are watched.

Written from the documents of Ascend C alone; each header names the pages that it follows.
"""
