"""
NIXL over KVCL's plugin (bindings/nixl): the agents and calls of peer_nixl.py, so that two backends of NIXL are compared
by one API. NIXL_PLUGIN_DIR names the plugin's folder. The plugin always has its progress thread: there is one setting.
"""

import os

import peer_nixl

SETTINGS = ("default",)
PATHS = peer_nixl.PATHS

ENVIRONMENT = {"shm": {"KVCL_PATH": "shm"}, "tcp": {"KVCL_PATH": "tcp", "KVCL_NET": "lo"}}


class Peer(peer_nixl.Peer):
    def __init__(self, path, setting, role, memory):
        os.environ.update(ENVIRONMENT[path])
        super().__init__(path, setting, role, memory)

    @staticmethod
    def make_agent(api, role, _progress_thread):
        agent = api.nixl_agent(role, api.nixl_agent_config(backends=[]))
        agent.create_backend("KVCL", {})
        return agent
