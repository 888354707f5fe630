#include "comm/tcp.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

static void set_number(int socket, int level, int option, int value)
{
    setsockopt(socket, level, option, &value, sizeof value);
}

/* Keepalive finds a silent host while nothing is sent, TCP_USER_TIMEOUT while something is. */
static void configure(int socket)
{
    fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
    set_number(socket, IPPROTO_TCP, TCP_NODELAY, 1);
    set_number(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_number(socket, IPPROTO_TCP, TCP_KEEPIDLE, 3);
    set_number(socket, IPPROTO_TCP, TCP_KEEPINTVL, 2);
    set_number(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
    set_number(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 1000 * TCP_SILENT_SECONDS);
}

/* Returns a listening socket; IPv6 ones also take IPv4 unless there is none. */
static int bound(int family, int port)
{
    int made = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const struct sockaddr *address = family == AF_INET6 ? (struct sockaddr *)&six : (struct sockaddr *)&four;
    socklen_t size = family == AF_INET6 ? sizeof six : sizeof four;
    if (made < 0) return -1;
    set_number(made, SOL_SOCKET, SO_REUSEADDR, 1);
    if (family == AF_INET6) set_number(made, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (bind(made, address, size) == 0 && listen(made, SOMAXCONN) == 0) return made;
    int error = errno;
    close(made);
    errno = error;
    return -1;
}

int tcp_listen(int *port, struct reason *why)
{
    int made = bound(AF_INET6, *port);
    if (made < 0 && errno != EADDRINUSE && errno != EACCES) made = bound(AF_INET, *port);
    if (made < 0) {
        because(why, "port %d cannot be used: %s", *port, strerror(errno));
        return -1;
    }
    struct sockaddr_storage own;
    socklen_t size = sizeof own;
    getsockname(made, (struct sockaddr *)&own, &size);
    *port = ntohs(((struct sockaddr_in *)&own)->sin_port);
    return made;
}

static bool wait_for(int socket, short events, double deadline)
{
    struct pollfd polled = {.fd = socket, .events = events};
    for (;;) {
        double left = deadline - clock_seconds();
        int ready = poll(&polled, 1, left > 0 ? (int)(1000 * left) + 1 : 0);
        if (ready > 0) return true;
        if (ready == 0 || errno != EINTR) return false;
    }
}

int tcp_accept(int listening, double seconds)
{
    if (!wait_for(listening, POLLIN, clock_seconds() + seconds)) return -1;
    int made = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
    if (made >= 0) configure(made);
    return made;
}

static int connect_to(const struct addrinfo *to, double seconds, struct reason *why)
{
    int made = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), error = 0;
    socklen_t size = sizeof error;
    if (made < 0) return because_errno(why, "no socket"), -1;
    configure(made);
    if (connect(made, to->ai_addr, to->ai_addrlen) != 0) error = errno;
    if (error == EINPROGRESS) {
        error = ETIMEDOUT;
        if (wait_for(made, POLLOUT, clock_seconds() + seconds))
            getsockopt(made, SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == 0) return made;
    because(why, "%s", strerror(error));
    close(made);
    return -1;
}

int tcp_connect(const char *address, int port, double seconds, struct reason *why)
{
    const struct addrinfo wanted = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    int failed = getaddrinfo(address, service, &wanted, &found), made = -1;
    if (failed) return because(why, "%s", gai_strerror(failed)), -1;
    for (const struct addrinfo *to = found; to && made < 0; to = to->ai_next)
        made = connect_to(to, seconds, why);
    freeaddrinfo(found);
    return made;
}

bool tcp_write(int socket, const void *bytes, size_t count, double deadline)
{
    for (size_t done = 0; done < count;) {
        ssize_t wrote = send(socket, (const char *)bytes + done, count - done, MSG_NOSIGNAL);
        if (wrote > 0) done += (size_t)wrote;
        else if (wrote < 0 && errno != EAGAIN && errno != EINTR) return false;
        else if (!wait_for(socket, POLLOUT, deadline)) return false;
    }
    return true;
}

bool tcp_read(int socket, void *bytes, size_t count, double deadline)
{
    for (size_t done = 0; done < count;) {
        ssize_t got = recv(socket, (char *)bytes + done, count - done, 0);
        if (got > 0) done += (size_t)got;
        else if (got == 0 || (errno != EAGAIN && errno != EINTR)) return false;
        else if (!wait_for(socket, POLLIN, deadline)) return false;
    }
    return true;
}

static void name_address(const struct sockaddr *of, socklen_t size, char address[TCP_ADDRESS])
{
    static const char mapped[] = "::ffff:";
    address[0] = '\0';
    getnameinfo(of, size, address, TCP_ADDRESS, NULL, 0, NI_NUMERICHOST);
    if (strncmp(address, mapped, strlen(mapped)) == 0)
        memmove(address, address + strlen(mapped), strlen(address + strlen(mapped)) + 1);
}

void tcp_peer_address(int socket, char address[TCP_ADDRESS])
{
    struct sockaddr_storage of;
    socklen_t size = sizeof of;
    address[0] = '\0';
    if (getpeername(socket, (struct sockaddr *)&of, &size) == 0)
        name_address((struct sockaddr *)&of, size, address);
}

void tcp_own_address(int socket, char address[TCP_ADDRESS])
{
    struct sockaddr_storage of;
    socklen_t size = sizeof of;
    address[0] = '\0';
    if (getsockname(socket, (struct sockaddr *)&of, &size) == 0)
        name_address((struct sockaddr *)&of, size, address);
}

bool tcp_is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

void tcp_interface(const char *address, char name[TCP_ADDRESS])
{
    struct ifaddrs *all;
    name[0] = '\0';
    if (getifaddrs(&all) != 0) return;
    for (const struct ifaddrs *one = all; one && !name[0]; one = one->ifa_next) {
        char its[TCP_ADDRESS] = "";
        int family = one->ifa_addr ? one->ifa_addr->sa_family : AF_UNSPEC;
        if (family != AF_INET && family != AF_INET6) continue;
        size_t size = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        name_address(one->ifa_addr, (socklen_t)size, its);
        if (strcmp(its, address) == 0) snprintf(name, TCP_ADDRESS, "%s", one->ifa_name);
    }
    freeifaddrs(all);
}

double tcp_interface_rate(const char *name)
{
    char path[TCP_ADDRESS + 32];
    double megabits = 0;
    snprintf(path, sizeof path, "/sys/class/net/%s/speed", name);
    FILE *file = *name ? fopen(path, "r") : NULL;
    if (!file) return 0;
    if (fscanf(file, "%lf", &megabits) != 1) megabits = 0;
    fclose(file);
    return megabits > 0 ? megabits * 1e6 / 8 : 0;
}
