/* tcp.h: TCP connections between ranks, with deadlines (clock_seconds) and the reason when they fail. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

#define TCP_ADDRESS 64           /* bytes of "10.0.0.2" */

/* A socket that listens on a port of all interfaces, 0: any, which becomes *port; -1, with the reason. */
int tcp_listen(int *port, struct reason *why);

/* The next connection; -1: none within that time. */
int tcp_accept(int listening, double seconds);

/* Connects once; -1, with the reason. Connections end when the other host has not answered for
 * TCP_SILENT_SECONDS, and send what is written at once. */
#define TCP_SILENT_SECONDS 9
int tcp_connect(const char *address, int port, double seconds, struct reason *why);

/* Moves all of the bytes, before the deadline; false: the connection has ended, or it is too late. */
bool tcp_write(int socket, const void *bytes, size_t count, double deadline);
bool tcp_read(int socket, void *bytes, size_t count, double deadline);

/* The numeric addresses of a connection's ends. */
void tcp_peer_address(int socket, char address[TCP_ADDRESS]);
void tcp_own_address(int socket, char address[TCP_ADDRESS]);
bool tcp_is_loopback(const char *address);
/* The interface that has an address, "eth0"; empty if it is not known. */
void tcp_interface(const char *address, char name[TCP_ADDRESS]);
/* Bytes per second of an interface's link; 0 if it does not say. */
double tcp_interface_rate(const char *name);
